package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// recorded waits until the recorders of a site are those that are wanted, by job and
// rank, and follow it.
func (s *site) recorded(want map[string]trace.State) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var got map[string]trace.State
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		recorders, err := trace.Recorders(s.rings)
		got = map[string]trace.State{}
		for _, r := range recorders {
			got[fmt.Sprint(r.Job, "/", r.Rank)] = r.Followed
		}

		if err == nil && fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
	}

	s.t.Fatalf("recorders follow %v, want %v", got, want)
}

// TestSwitchOneJob: one agent, several jobs. What is switched is the job that was named,
// those of its processes that come later, and nobody else.
func TestSwitchOneJob(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	agent := s.agent("--listen", "unix")
	agent.says(`serving the switch" address=(unix:\S+)`)
	trainers := []*running{s.emitterOf("a", 0, 2, 1<<30), s.emitterOf("b", 0, 1, 1<<30)}
	s.recorded(map[string]trace.State{"a/0": trace.On, "b/0": trace.On})
	call := func(args ...string) {
		t.Helper()
		if r := laggard(t, append([]string{"trace"}, append(args, "--ring-dir", s.rings)...)...); r.code != 0 {
			t.Fatalf("trace %v: %+v", args, r)
		}
	}
	call("off", "--job", "a")
	s.recorded(map[string]trace.State{"a/0": {}, "b/0": trace.On})
	trainers = append(trainers, s.emitterOf("c", 0, 1, 1<<30), s.emitterOf("a", 1, 2, 1<<30))
	s.recorded(map[string]trace.State{"a/0": {}, "a/1": {}, "b/0": trace.On, "c/0": trace.On})
	call("on", "--job", "b", "--words", "Step")
	call("on", "--job", "a")
	s.recorded(map[string]trace.State{"a/0": trace.On, "a/1": trace.On, "b/0": {Light: true}, "c/0": trace.On})
	for _, e := range trainers {
		e.command.Process.Kill()
		<-e.done
	}
}

// TestOffIsTold: a job that was off for a while says so, and one that is off reads as
// off: from files and from both stores.
func TestOffIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	server := chtest.Start(t)
	agent := s.agent("--listen", "unix")
	agent.says(`serving the switch" address=(unix:\S+)`)
	call := func(word, job string) {
		t.Helper()
		if r := laggard(t, "trace", word, "--job", job, "--ring-dir", s.rings); r.code != 0 {
			t.Fatalf("trace %s: %+v", word, r)
		}
	}
	stepped := func(job string, more float64) {
		t.Helper()
		name := `laggard_records_drained_total{kind="Step"}`
		var first float64
		agent.until("steps", func(m map[string]float64) bool {
			if first == 0 {
				first = m[name]
			}

			return m[name] >= first+more
		})
	}
	trainers := []*running{s.emitterOf("paused", 0, 1, 1<<30), s.emitterOf("left", 0, 1, 1<<30)}
	never := s.emitterOf("never", 0, 1, 1<<30, "LAGGARD_TRACE=off")
	s.recorded(map[string]trace.State{"paused/0": trace.On, "left/0": trace.On, "never/0": {}})
	stepped("", 100)
	call("off", "left")
	call("off", "paused")
	s.recorded(map[string]trace.State{"paused/0": {}, "left/0": {}, "never/0": {}})
	agent.until("a pass without a record", func(m map[string]float64) bool { return m["laggard_drain_lag_seconds"] == 0 })
	call("on", "paused")
	s.recorded(map[string]trace.State{"paused/0": trace.On, "left/0": {}, "never/0": {}})
	stepped("", 100)
	if r := laggard(t, "trace", "status", "--ring-dir", s.rings); r.code != 0 || !regexp.MustCompile(`left +0 +- +\d+ +off +off`).MatchString(r.out) {
		t.Errorf("trace status: %+v", r)
	}

	for _, e := range append(trainers, never) {
		e.command.Process.Kill()
		<-e.done
	}

	agent.until("the recorders gone", func(m map[string]float64) bool { return m["laggard_recorders"] == 0 })
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	agent.wait()
	clickhouse := server.Store(server.Database())
	if r := laggard(t, "ingest", s.dir, "--to", clickhouse); r.code != 0 {
		t.Fatalf("ingest: %+v", r)
	}

	var first [3]*verdict.Verdict
	for _, source := range []string{s.dir, s.store, clickhouse} {
		for i, tt := range []struct{ job, detail string }{
			{"paused", `^recording was off from \S+ \S+ UTC to \S+ \S+ UTC$`},
			{"left", `^recording has been off since \S+ \S+ UTC$`},
			{"never", `^recording has been off since \S+ \S+ UTC$`},
		} {
			v := decided(t, verdict.ExitUndecided, source, "--job", tt.job)
			k := slices.IndexFunc(v.Findings, func(f verdict.Finding) bool { return f.Kind == verdict.RecordingOff })
			if k < 0 || !regexp.MustCompile(tt.detail).MatchString(v.Findings[k].Detail) {
				t.Errorf("%s of %s: findings %+v", tt.job, source, v.Findings)
			}

			if tt.job == "paused" && v.Coverage >= 1 {
				t.Errorf("%s of %s: coverage %v", tt.job, source, v.Coverage)
			}

			v.Source = ""
			if first[i] == nil {
				first[i] = v
			} else if d := cmp.Diff(first[i], v); d != "" {
				t.Errorf("%s differs in %s (-files +store):\n%s", tt.job, source, d)
			}

			watchedToo(t, v, source, tt.job)
			if r := laggard(t, "analyze", source, "--job", tt.job); tt.job != "paused" && (!strings.Contains(strings.ToUpper(r.out), "OFF") || strings.Contains(strings.ToUpper(r.out), "UNDECIDED")) {
				t.Errorf("%s of %s reads: %+v", tt.job, source, r)
			}
		}
	}
}

// watchedToo holds that a watcher says of a job what analyze says.
func watchedToo(t *testing.T, want *verdict.Verdict, source, job string) {
	t.Helper()
	r := laggard(t, "watch", source, "--job", job, "--once", "--metrics=", "-o", "json")
	var got verdict.Verdict
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatalf("watch %s: %v in %+v", source, err, r)
	}

	if got.Coverage != want.Coverage || got.Decided != want.Decided || !cmp.Equal(got.Findings, want.Findings) {
		t.Errorf("watch: %s of %s: coverage %v, findings %+v; analyze: %v, %+v", job, source, got.Coverage, got.Findings, want.Coverage, want.Findings)
	}
}

// TestSwitchByUID: in a pod the recorders call the job by its uid; its callers name it,
// and TaskD's manager says the uid.
func TestSwitchByUID(t *testing.T) {
	t.Parallel()
	const uid = "6f3a0c1e-5d0b-4b8e-9a55-0123456789ab"
	s := newSite(t, "")
	agent := s.agent("--job-name", "ns/train", "--listen", "unix")
	agent.says(`serving the switch" address=(unix:\S+)`)
	// The agent was started for it: it is known before its first recorder.
	for i, name := range []string{"ns/train", "ns/" + uid} {
		state := []trace.State{{}, {Light: true}}[i]
		args := [][]string{{"off"}, {"on", "--words", "Step"}}[i]
		if r := laggard(t, append(append([]string{"trace"}, args...), "--job", name, "--ring-dir", s.rings)...); r.code != 0 {
			t.Fatalf("trace %v --job %s: %+v", args, name, r)
		}

		if i == 0 {
			e := s.emitterOf(uid, 0, 1, 1<<30)
			defer func() {
				e.command.Process.Kill()
				<-e.done
			}()
		}

		s.recorded(map[string]trace.State{uid + "/0": state})
	}

	if r := laggard(t, "trace", "off", "--job", "ns/other", "--ring-dir", s.rings); r.code != 1 {
		t.Errorf("an unknown job: %+v", r)
	}
}
