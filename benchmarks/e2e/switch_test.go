package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/collector/switchboard/endpoint/endpointtest"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// followed waits until the only recorder of a site has said who it is and follows the
// state, and returns how long after since it did.
func (s *site) followed(want trace.State, since time.Time) time.Duration {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(deadline) {
		recorders, err := trace.Recorders(s.rings)
		if err == nil && len(recorders) == 1 && recorders[0].Job != "" && recorders[0].Followed == want {
			return time.Unix(0, recorders[0].FollowedAt).Sub(since)
		}

		<-tick.C
	}

	s.t.Fatalf("the recorder never followed %v", want)
	return 0
}

// TestSwitchByCall switches a recorder that runs, over gRPC as the command line
// does it, and holds the refusals.
func TestSwitchByCall(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	agent := s.agent("--records", "all")
	emitter := s.emitter(0, 1, 1<<30)
	s.followed(trace.On, time.Time{})
	var phases []phase
	address := agent.says(`serving the switch" address=(\S+)`)
	call := func(code int, args ...string) laggardResult {
		t.Helper()
		r := laggard(t, append([]string{"trace"}, args...)...)
		if r.code != code {
			t.Fatalf("trace %v: %+v, want exit code %d", args, r, code)
		}

		return r
	}
	for _, step := range []struct {
		args []string
		want trace.State
	}{
		{[]string{"off"}, trace.State{}},
		{[]string{"on", "--words", "Step"}, trace.State{Light: true}},
		{[]string{"on"}, trace.On},
	} {
		since := time.Now()
		call(0, append(step.args, "--job", "j1", "--agent", address)...)
		took := s.followed(step.want, since)
		t.Logf("trace %v: followed %v after the command began", step.args, took)
		phases = append(phases, phase{step.want, since.Add(took), since})
		s.recordsOn(step.want)
	}

	phases = append(phases, phase{called: time.Now()})
	call(1, "off", "--job", "another", "--agent", address)
	call(2, "on", "--words", "Stepp", "--job", "j1", "--agent", address)
	r := laggard(t, "trace", "status", "--ring-dir", s.rings, "-o", "json")
	var recorders []trace.Recorder
	if err := json.Unmarshal([]byte(r.out), &recorders); err != nil || len(recorders) != 1 || recorders[0].Job != "j1" || recorders[0].Wanted != recorders[0].Followed {
		t.Errorf("status: %+v, %v", r, err)
	}

	emitter.command.Process.Kill()
	<-emitter.done
	agent.until("the recorder gone", func(m map[string]float64) bool { return m["laggard_recorders"] == 0 })
	if err := agent.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	agent.wait()
	s.exact(phases)
}

// recordsOn waits until the only recorder has begun several steps more, as it does in that
// state, or lets some time pass in which it records nothing.
func (s *site) recordsOn(state trace.State) {
	s.t.Helper()
	if state == (trace.State{}) {
		<-time.After(200 * time.Millisecond)
		return
	}

	each := uint64(perStep)
	if !state.Communication {
		each = perStep - emitterCalls
	}

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	first, deadline := s.emitted(), time.Now().Add(patience)
	for s.emitted() < first+10*each {
		if <-tick.C; time.Now().After(deadline) {
			s.t.Fatalf("%v: nothing is recorded", state)
		}
	}
}

// emitted is how many records the only recorder has written into its rings so far.
func (s *site) emitted() (n uint64) {
	s.t.Helper()
	names, err := ring.Names(s.rings)
	if err != nil || len(names) != 1 {
		s.t.Fatalf("rings %v, %v", names, err)
	}

	f, err := ring.OpenFolder(s.rings, names[0])
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	status, err := f.Status()
	if err != nil {
		s.t.Fatal(err)
	}

	for i := range status.Rings {
		r, err := f.OpenReader(i + 1)
		if err != nil {
			s.t.Fatal(err)
		}

		c, err := r.Counters()
		if err != nil {
			s.t.Fatal(err)
		}

		n += c.Head[ring.Light] + c.Head[ring.Bulk]
		r.Close()
	}

	return n
}

// phase is a state that the recorder followed from a moment on, and when it was
// called for: the next phase is called for while this one still holds.
type phase struct {
	state            trace.State
	followed, called time.Time
}

// exact holds what is stored to the phases: no record began in a phase that its
// kind is off in, no step is missing in one that it is on in, each step whole, and
// the sequence numbers of each ring have no gap.
func (s *site) exact(phases []phase) {
	s.t.Helper()
	ctx := context.Background()
	src, err := source.Open(ctx, s.store, source.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer src.Close()
	seqs := map[uint32][]uint64{}
	steps := make([][]int64, len(phases))
	comms := make([]int, len(phases))
	within := func(ns int64) int {
		for i := range phases[:len(phases)-1] {
			if ns >= phases[i].followed.UnixNano() && ns < phases[i+1].called.UnixNano() {
				return i
			}
		}

		return -1
	}
	err = src.Records(ctx, "j1", source.Options{}, func(_ []row.Rank, records []row.Record) error {
		for _, r := range records {
			if r.Open == 0 {
				seqs[r.Ring] = append(seqs[r.Ring], r.Seq)
			}

			i := within(r.StartNs)
			switch {
			case i < 0:
			case r.Kind == record.Communication.String():
				comms[i]++
			case r.Kind == record.Step.String():
				steps[i] = append(steps[i], r.Step)
			}
		}

		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}

	for ring, list := range seqs {
		slices.Sort(list)
		if n := uint64(len(list)); list[0] != 0 || list[n-1] != n-1 || len(slices.Compact(list)) != int(n) {
			s.t.Errorf("ring %d: %d records with sequence numbers %d to %d", ring, n, list[0], list[n-1])
		}
	}

	for i, p := range phases[:len(phases)-1] {
		slices.Sort(steps[i])
		n := len(steps[i])
		if p.state.Light != (n > 0) || n > 0 && steps[i][n-1]-steps[i][0] != int64(n-1) {
			s.t.Errorf("%v: %d steps stored: %v", p.state, n, steps[i])
		}

		if whole := (n - 2) * emitterCalls; !p.state.Communication && comms[i] > 0 || p.state.Communication && (comms[i] < whole || n == 0) {
			s.t.Errorf("%v: %d communications in %d steps", p.state, comms[i], n)
		}

		s.t.Logf("%v: %d steps, %d communications", p.state, n, comms[i])
	}
}

// TestSwitchByFile obeys TaskD's file, also one that is swapped as a ConfigMap's
// is, and keeps the state while it is half-written.
func TestSwitchByFile(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	mount := t.TempDir()
	write := func(version, text string) {
		t.Helper()
		dir := filepath.Join(mount, version)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(dir, "profilingSwitch"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}

		next := filepath.Join(mount, "..data_tmp")
		if err := os.Symlink(version, next); err != nil {
			t.Fatal(err)
		}

		if err := os.Rename(next, filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	const off = `{"CommunicationOperator":"off","Step":"off","SaveCheckpoint":"off","FP":"off","DataLoader":"off"}`
	const light = `{"CommunicationOperator":"off","Step":"on","SaveCheckpoint":"on","FP":"on","DataLoader":"on"}`
	write("..1", off)
	if err := os.Symlink(filepath.Join("..data", "profilingSwitch"), filepath.Join(mount, "profilingSwitch")); err != nil {
		t.Fatal(err)
	}

	s.agent("--switch-file", filepath.Join(mount, "profilingSwitch"))
	emitter := s.emitter(0, 1, 1<<30)
	s.followed(trace.State{}, time.Time{})
	since := time.Now()
	write("..2", light)
	t.Logf("by file: followed %v after the swap", s.followed(trace.State{Light: true}, since))
	write("..3", off[:40])
	write("..4", light) // what came between was no state
	s.followed(trace.State{Light: true}, time.Time{})
	emitter.command.Process.Kill()
	<-emitter.done
}

// secured gives every laggard that the test starts a certificate, who signs the others',
// and a token.
func secured(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	a := endpointtest.New(t, dir)
	cert, key := a.Leaf("any", "127.0.0.1")
	for name, file := range map[string]string{
		"CERT": cert, "KEY": key, "CA": a.CA(), "TOKEN_FILE": endpointtest.Token(t, filepath.Join(dir, "token"), "the token of a test"),
	} {
		t.Setenv("LAGGARD_SWITCH_"+name, file)
	}
}

// TestSwitchOneServer: rank 0's agent serves the switch of the job; the agent of
// another node subscribes, is told the last value when it comes, every change, and
// again after the server was away. Each recorder acknowledges for itself.
// All of it over mutual TLS with a token.
func TestSwitchOneServer(t *testing.T) {
	secured(t)
	first, second := newSite(t, ""), newSite(t, "")
	server := first.agent("--job-name", "ns/j1")
	address := server.says(`serving the switch" address=(\S+)`)
	zero := first.emitter(0, 2, 1<<30)
	first.followed(trace.On, time.Time{})
	call := func(args ...string) {
		t.Helper()
		if r := laggard(t, append(append([]string{"trace"}, args...), "--job", "ns/j1", "--agent", address)...); r.code != 0 {
			t.Fatalf("trace %v: %+v", args, r)
		}
	}
	for _, without := range [][]string{{"--switch-ca=", "--switch-cert=", "--switch-key="}, {"--switch-cert=", "--switch-key="}, {"--switch-token-file="}} {
		r := laggard(t, append([]string{"trace", "off", "--job", "ns/j1", "--agent", address}, without...)...)
		if r.code != 1 {
			t.Fatalf("trace off without %v: %+v", without, r)
		}
	}

	first.followed(trace.On, time.Time{})
	light := trace.State{Light: true}
	call("on", "--words", "Step")
	first.followed(light, time.Time{})
	one := second.emitter(1, 2, 1<<30)
	second.followed(trace.On, time.Time{}) // nobody has told it yet
	second.agent("--switch-server", address, "--job-name", "ns/j1", "--node", "node-1")
	second.followed(light, time.Time{}) // the last value, at once
	call("off")
	first.followed(trace.State{}, time.Time{})
	second.followed(trace.State{}, time.Time{})

	server.command.Process.Kill()
	<-server.done
	second.followed(trace.State{}, time.Time{}) // a server that is away changes nothing
	server = first.start("agent", "--dir", first.dir, "--store", first.store, "--node", "node-0", "--metrics", "", "--listen", address, "--job-name", "ns/j1")
	server.says(`serving the switch" address=(\S+)`)
	call("on")
	first.followed(trace.On, time.Time{})
	second.followed(trace.On, time.Time{})
	// Who follows, on every node, from the server.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		r := laggard(t, "trace", "status", "--job", "ns/j1", "--agent", address, "-o", "json")
		var recorders []trace.Recorder
		if err := json.Unmarshal([]byte(r.out), &recorders); err != nil {
			t.Fatalf("status: %+v, %v", r, err)
		}

		if len(recorders) == 2 && recorders[1].Wanted == recorders[1].Followed && recorders[1].Followed == trace.On {
			for rank, x := range recorders {
				if x.Rank != rank || x.Node != fmt.Sprint("node-", rank) || x.Job != "j1" || x.Followed != trace.On {
					t.Errorf("rank %d: %+v", rank, x)
				}
			}

			break
		}

		if time.Now().After(deadline) {
			t.Fatalf("the server never knew who follows: %s", r.out)
		}
	}

	for _, e := range []*running{zero, one} {
		e.command.Process.Kill()
		<-e.done
	}
}
