package main

import (
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestReplay_OfNoRanks wants an error that says what to do of a job whose recording was
// off all the time.
func TestReplay_OfNoRanks(t *testing.T) {
	dir := t.TempDir()
	root := rootCommand()
	root.SetArgs([]string{"simulate", dir, "--scenario", "small", "--ranks", "2", "--steps", "12"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}

	s, err := source.Open(t.Context(), dir, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	jobs, err := s.Jobs(t.Context())
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs %q, %v", jobs, err)
	}

	a := &analysis{source: dir, job: jobs[0], frame: &frame.Frame{}}
	if _, err := a.replay(t.Context(), verdict.New(a.job)); err == nil || !strings.Contains(err.Error(), "turn Communication on") {
		t.Errorf("%v, want what is missing", err)
	}
}
