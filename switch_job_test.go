package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/collector/trace"
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

// TestSwitchByUID: in a pod the recorders call the job by its uid; its callers name it,
// and TaskD's manager says the uid.
func TestSwitchByUID(t *testing.T) {
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
