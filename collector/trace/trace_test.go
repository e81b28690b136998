package trace

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/ring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	lightOnly = State{Light: true}
	allOff    = State{}
)

// TestWords tries all 32 combinations of the five words.
func TestWords(t *testing.T) {
	accepted := 0
	for i := range 32 {
		w := Words{word(i&1 != 0), word(i&2 != 0), word(i&4 != 0), word(i&8 != 0), word(i&16 != 0)}
		s, err := w.State()
		light := i &^ 1
		switch {
		case light != 0 && light != 30:
			if err == nil || !strings.Contains(err.Error(), "switched together") {
				t.Errorf("%+v: %v, %v, want the four to go together", w, s, err)
			}
		case i == 1:
			if err == nil || !strings.Contains(err.Error(), "can't be off while CommunicationOperator is on") {
				t.Errorf("%+v: %v, %v", w, s, err)
			}
		default:
			accepted++
			if err != nil || s.Words() != w {
				t.Errorf("%+v: %v, %v", w, s, err)
			}
		}
	}

	if accepted != 3 {
		t.Errorf("%d combinations are accepted, want off, the four, and all", accepted)
	}
}

func TestWrongValuesAreNamed(t *testing.T) {
	for value, want := range map[string]string{
		"On":   `FP: "On": must be "on" or "off" (did you mean "on"?)`,
		"of":   `FP: "of": must be "on" or "off" (did you mean "off"?)`,
		"":     `FP: must be "on" or "off", it is empty`,
		"true": `FP: "true": must be "on" or "off"`,
	} {
		w := On.Words()
		w.FP = value
		_, err := w.State()
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", value, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]State{
		"": On, "on": On, "ON": On, "off": allOff, "Step": lightOnly, "step, fp": lightOnly,
		"Step,FP,SaveCheckpoint,DataLoader": lightOnly, "CommunicationOperator": On, "Communication,Step": On,
	} {
		if s, err := Parse(text); s != want || err != nil {
			t.Errorf("Parse(%q) = %v, %v", text, s, err)
		}
	}

	for text, say := range map[string]string{
		"of": `did you mean "off"`, "Stepp": `did you mean "Step"`, "off,Step": "stands alone", "Step,,FP": "is none of", "7": "is none of",
	} {
		if s, err := Parse(text); s != On || err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("Parse(%q) = %v, %v", text, s, err)
		}
	}

	for _, s := range []State{On, lightOnly, allOff} {
		if again, err := Parse(s.String()); again != s || err != nil {
			t.Errorf("Parse(%q) = %v, %v", s, again, err)
		}

		if FromBits(s.Bits()) != s {
			t.Errorf("FromBits(%v)", s)
		}
	}
}

func TestParseFile(t *testing.T) {
	const all = `{"CommunicationOperator":"%","Step":"off","SaveCheckpoint":"off","FP":"off","DataLoader":"off"}`
	off := strings.ReplaceAll(all, "%", "off")
	for name, c := range map[string]struct {
		text    string
		want    State
		problem string
		err     string
	}{
		"all off":            {text: off, want: allOff},
		"comm alone on":      {text: strings.ReplaceAll(all, "%", "on"), want: On},
		"one light on":       {text: strings.Replace(off, `"FP":"off"`, `"FP":"on"`, 1), want: lightOnly},
		"missing light":      {text: strings.Replace(off, `"FP":"off",`, ``, 1), want: lightOnly},
		"missing comm":       {text: strings.Replace(off, `"CommunicationOperator":"off",`, ``, 1), want: lightOnly},
		"only comm on":       {text: `{"CommunicationOperator":"on"}`, want: On},
		"misspelt comm":      {text: strings.Replace(strings.ReplaceAll(all, "%", "on"), `"Comm`, `"comm`, 1), want: lightOnly, problem: `did you mean "CommunicationOperator"`},
		"empty object":       {text: `{}`, want: lightOnly},
		"twice":              {text: strings.Replace(off, `"FP":"off"`, `"FP":"on","FP":"off"`, 1), want: allOff},
		"misspelt key":       {text: strings.Replace(off, `"FP"`, `"Fp"`, 1), want: lightOnly, problem: `did you mean "FP"`},
		"extra key":          {text: strings.Replace(off, `{`, `{"Communication":"off",`, 1), want: allOff, problem: `Communication: is not one of`},
		"wrong value":        {text: strings.Replace(off, `"FP":"off"`, `"FP":"Off"`, 1), err: `did you mean "off"`},
		"boolean":            {text: strings.Replace(off, `"FP":"off"`, `"FP":false`, 1), err: `"false": must be`},
		"null value":         {text: strings.Replace(off, `"FP":"off"`, `"FP":null`, 1), err: `must be`},
		"half-written":       {text: off[:40], err: "not a JSON object"},
		"empty":              {text: ``, err: "not a JSON object"},
		"array":              {text: `[]`, err: "not a JSON object"},
		"null":               {text: `null`, err: "not a JSON object"},
		"two objects":        {text: off + off, err: "there is more"},
		"white space around": {text: "\n " + off + "\n", want: allOff},
	} {
		s, problems, err := ParseFile([]byte(c.text))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, %v, want an error with %s", name, s, err, c.err)
			}

			continue
		}

		if err != nil || s != c.want {
			t.Errorf("%s: %v, %v, want %v", name, s, err, c.want)
		}

		if (c.problem == "") != (len(problems) == 0) || c.problem != "" && !strings.Contains(problems[0].Error(), c.problem) {
			t.Errorf("%s: problems %v, want %s", name, problems, c.problem)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte(`{"CommunicationOperator":"on","Step":"off","FP":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, _, err := ParseFile(b); err == nil && s.Communication && !s.Light {
			t.Fatalf("%q: Communication without the four", b)
		}
	})
}

// follower keeps what it was told.
func follower(t *testing.T, path string) (*Follower, *[]State, *bytes.Buffer) {
	var states []State
	var log bytes.Buffer
	return &Follower{Path: path, Set: func(s State) error {
		states = append(states, s)
		return nil
	}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, &states, &log
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const (
	fileOff   = `{"CommunicationOperator":"off","Step":"off","SaveCheckpoint":"off","FP":"off","DataLoader":"off"}`
	fileLight = `{"CommunicationOperator":"off","Step":"on","SaveCheckpoint":"on","FP":"on","DataLoader":"on"}`
)

func TestFollowerKeepsTheState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profilingSwitch")
	f, states, log := follower(t, path)
	now := time.Now()
	look := func(text string) {
		t.Helper()
		if text != "" {
			write(t, path, text)
		}

		now = now.Add(time.Second)
		f.look(now)
	}
	look("") // no file yet
	if len(*states) != 0 || log.Len() != 0 {
		t.Fatalf("without a file: %v, %s", *states, log)
	}

	look(fileOff)
	look(fileOff[:30])
	look(strings.Replace(fileLight, `"on"`, `"onn"`, 1))
	look(fileOff)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	look("")
	if len(*states) != 1 || (*states)[0] != allOff {
		t.Fatalf("states %v, want off once", *states)
	}

	look(fileLight)
	look(fileLight)
	if len(*states) != 2 || (*states)[1] != lightOnly {
		t.Fatalf("states %v", *states)
	}

	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want one for each thing that was wrong: %s", n, log)
	}

	bad := strings.Replace(fileLight, `"on"`, `"onn"`, 1)
	log.Reset()
	for range 70 {
		look(bad)
	}

	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines in 70 s, want 2", n)
	}
}

func TestFollowerTriesAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profilingSwitch")
	write(t, path, fileOff)
	f, states, _ := follower(t, path)
	fail := errors.New("no rings")
	set := f.Set
	f.Set = func(State) error { return fail }
	f.look(time.Now())
	f.Set = set
	f.look(time.Now())
	if len(*states) != 1 {
		t.Errorf("states %v", *states)
	}
}

// TestFollowerRun swaps a ConfigMap as the kubelet does, and goes by the hint.
func TestFollowerRun(t *testing.T) {
	dir := t.TempDir()
	version := func(n, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, n), 0o755); err != nil {
			t.Fatal(err)
		}

		write(t, filepath.Join(dir, n, "profilingSwitch"), text)
		if err := errors.Join(
			os.Symlink(n, filepath.Join(dir, "..data_tmp")),
			os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")),
		); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", fileOff)
	path := filepath.Join(dir, "profilingSwitch")
	if err := os.Symlink("..data/profilingSwitch", path); err != nil {
		t.Fatal(err)
	}

	seen := make(chan State, 10)
	f := &Follower{Path: path, Set: func(s State) error {
		seen <- s
		return nil
	}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	expect := func(want State) {
		t.Helper()
		select {
		case s := <-seen:
			if s != want {
				t.Fatalf("switched to %v, want %v", s, want)
			}
		case <-time.After(3 * time.Minute):
			t.Fatalf("not switched to %v", want)
		}
	}
	expect(allOff)
	version("..2", fileLight)
	expect(lightOnly)
	version("..3", fileOff)
	expect(allOff)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestReadFileRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := readFile(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}

	big := filepath.Join(dir, "big")
	write(t, big, strings.Repeat(" ", fileLimit+1))
	if _, _, err := readFile(big); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large file: %v", err)
	}
}

func TestApply(t *testing.T) {
	run := ringtest.Shared(t)
	id, err := ring.Self()
	if err != nil {
		t.Fatal(err)
	}

	if err := Apply(run, allOff, func(string) bool { return true }); err != nil {
		t.Fatalf("without a run directory: %v", err)
	}

	texts := ring.NewStrings()
	p, err := ring.Create(run, id, texts, ring.AllOn)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.SetIdentity(texts.Intern(`{"rank":3,"world_size":"many","job":"j"}`)) // as a drain reads it: what can be read stays
	if err := os.Mkdir(filepath.Join(run, "00000000000000aa"), 0o770); err != nil {
		t.Fatal(err)
	}

	for i, state := range []State{lightOnly, lightOnly, allOff, On} {
		if err := Apply(run, state, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}

		w, _ := p.Wanted()
		if FromBits(w) != state || w>>8 != []uint32{1, 1, 2, 3}[i] {
			t.Errorf("word %#x for %v", w, state)
		}

		all, err := Recorders(run)
		if err != nil || len(all) != 1 || all[0].PID != os.Getpid() || all[0].Job != "j" || all[0].Rank != 3 || all[0].Wanted != state || (all[0].Wanted == all[0].Followed) != (state == On) {
			t.Errorf("Recorders = %+v, %v", all, err)
		}
	}

	p.Close()
	if all, _ := Recorders(run); len(all) != 0 {
		t.Errorf("a closed recorder is listed: %+v", all)
	}
}
