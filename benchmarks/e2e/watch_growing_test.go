package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestWatch_NamesWithinTenSteps runs the command again and again on a directory that
// grows, each time from the state that the last one left: a constant fault is named, as
// suspected at least, by the time that ten steps with it were judged, as degraded after
// twenty, and stays so, and nobody else is; at the end the
// verdict is analyze's. Steps are counted, not seconds. LAGGARD_SEEDS=all adds another factor.
func TestWatch_NamesWithinTenSteps(t *testing.T) {
	t.Parallel()
	scenarios := []string{"compute-1.10", "compute-1.5"}
	if os.Getenv("LAGGARD_SEEDS") == "all" {
		scenarios = append(scenarios, "compute-1.2")
	}

	for k, scenario := range scenarios {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			cfg, err := simulate.Sized(scenario, uint64(k)+3, 16)
			if err != nil {
				t.Fatal(err)
			}

			cfg.Faults[0].From, cfg.Steps, cfg.Shape.MicroBatches = 60, 110, cfg.Shape.PP
			dir := filepath.Join(t.TempDir(), "job")
			truth, err := simulate.Write(dir, cfg)
			if err != nil {
				t.Fatal(err)
			}

			node, onset := truth.Culprits[0].Node, int64(truth.Culprits[0].OnsetStep)
			g, state := newGrowth(t, dir, uint64(k), 1), t.TempDir()
			for g.grow(t) {
				v := watchedOnce(t, g.to, state)
				if v == nil {
					continue
				}

				i := slices.IndexFunc(v.Nodes, func(n verdict.Node) bool { return n.Node == node })
				if v.Steps.Last >= onset+10 && i < 0 {
					t.Fatalf("%s has been slow since step %d, and at step %d it isn't named", node, onset, v.Steps.Last)
				}

				if v.Steps.Last >= onset+20 && v.Nodes[i].State != verdict.Degraded {
					t.Fatalf("%s has been slow since step %d, and at step %d it is %s", node, onset, v.Steps.Last, v.Nodes[i].State)
				}

				if k := slices.IndexFunc(v.Nodes, func(n verdict.Node) bool { return n.Node != node && n.State != verdict.Suspect }); k >= 0 {
					t.Fatalf("at step %d %+v is named, the culprit is %s", v.Steps.Last, v.Nodes[k], node)
				}
			}

			want := analyzed(t, anyVerdict, dir)
			type who struct {
				Node, State, Cause string
				Since, Detected    int64
			}
			named := func(v *verdict.Verdict) (out []who) {
				for _, n := range v.Nodes {
					out = append(out, who{n.Node, n.State, n.Cause, n.SinceStep, n.DetectedStep})
				}

				return out
			}
			if grown := watchedOnce(t, g.to, state); !slices.Equal(named(grown), named(want)) { // its last steps may still be open
				t.Errorf("watch names %+v at the end, analyze %+v", named(grown), named(want))
			}

			got := watchedOnce(t, g.to, "") // nothing grows any more: unfinished steps count, too
			want.Source, got.Source = "", ""
			if diff := cmp.Diff(generic(t, want), generic(t, got)); diff != "" {
				t.Errorf("watch ends with another verdict than analyze (-analyze +watch):\n%s", diff)
			}
		})
	}
}

// watchedOnce runs watch --once and returns the last verdict that it printed, nil for none.
func watchedOnce(t *testing.T, dir, state string) *verdict.Verdict {
	t.Helper()
	r := laggard(t, "watch", dir, "--once", "-o", "json", "--state", state, "--lag", "20m")
	if !slices.Contains(anyVerdict, r.code) {
		t.Fatalf("watch --once: exit code %d\n%s", r.code, r.err)
	}

	var last *verdict.Verdict
	for d := json.NewDecoder(strings.NewReader(r.out)); ; {
		var v verdict.Verdict
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return last
		}

		if err != nil {
			t.Fatal(err)
		}

		last = &v
	}
}
