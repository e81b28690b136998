package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestAnalyze_WindowsDoNotFlicker analyzes every 16 steps in a row of the recorded
// jobs: whoever is named in one window is named in all, for the same cause, with the same
// exit code; where a window can't be decided nobody is named.
func TestAnalyze_WindowsDoNotFlicker(t *testing.T) {
	t.Parallel()
	const window = 16
	for name, want := range map[string]string{"AR-1": "node-0 compute", "AR-1-full": "node-0 compute", "ST": "", "ST-full": ""} {
		t.Run(name, func(t *testing.T) {
			dir, ok := unpackTrace(t, name)
			if !ok {
				return
			}

			src, err := source.Open(t.Context(), dir, source.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			var all row.Rows
			info, err := src.Load(t.Context(), "", all.Add, source.Options{})
			if err != nil {
				t.Fatal(err)
			}

			var steps []uint64
			for _, s := range all.Steps {
				steps = append(steps, s.Step)
			}

			slices.Sort(steps)
			steps = slices.Compact(steps)
			named, decided, codes := 0, 0, map[int]int{}
			for at := 0; at+window <= len(steps); at++ {
				from, to := steps[at], steps[at+window-1]
				b := &feed.History{}
				for i := range all.Ranks {
					b.AddRank(&all.Ranks[i])
				}

				for i := range all.Steps {
					if s := &all.Steps[i]; s.Step >= from && s.Step <= to {
						b.AddStep(s)
					}
				}

				for i := range all.Communications {
					if c := &all.Communications[i]; c.StepTo >= from && c.StepFrom <= to {
						b.AddCommunication(c)
					}
				}

				f, err := b.Frame(info.Topology)
				if err != nil {
					t.Fatal(err)
				}

				v := detect.Analyze(f, detect.Default())
				var nodes []string
				for _, n := range v.Nodes {
					if n.State != verdict.Suspect {
						nodes = append(nodes, n.Node+" "+n.Cause)
					}
				}

				named += len(nodes)
				codes[v.Exit(detect.Default().MinImpact)]++
				if v.Decided {
					decided++
				}

				if got := strings.Join(nodes, ", "); got != want && (v.Decided || got != "") {
					t.Errorf("steps %d to %d: %q (decided: %v), want %q", from, to, got, v.Decided, want)
				}
			}

			if want != "" && named == 0 {
				t.Error("no window names the culprit")
			}

			if len(codes) > 1 {
				t.Errorf("windows by exit code: %v, want one", codes)
			}

			t.Logf("%d windows, the culprit named in %d, decided in %d", len(steps)-window+1, named, decided)
		})
	}
}
