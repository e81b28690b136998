package whatif

import (
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// load reads a recorded job (CONTRIBUTING.md) with every raw range. Without its archive it
// says so and reports false.
func load(t *testing.T, name, job string) (*Job, bool) {
	t.Helper()
	archive := filepath.Join("..", "..", "..", "shared", "data", name+".tar.gz")
	if _, err := os.Stat(archive); errors.Is(err, os.ErrNotExist) {
		t.Logf("RAN WITHOUT THE REAL TRACE %s: the recorded jobs (CONTRIBUTING.md) are not there", name)
		return nil, false
	}

	dir := t.TempDir()
	if said, err := exec.Command("tar", "-xzmf", archive, "-C", dir, "--no-same-owner").CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", archive, err, said)
	}

	dirs, err := segment.Walk(filepath.Join(dir, name, job))
	if err != nil {
		t.Fatal(err)
	}

	var rows row.Rows
	for _, d := range dirs {
		_, err := rollup.Dir(context.Background(), d, rollup.Options{Records: rollup.All}, func(r *row.Rows) error {
			rows.Ranks = append(rows.Ranks, r.Ranks...)
			rows.Raws.Append(&r.Raws)
			*r = row.Rows{}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	file, err := topology.Load(filepath.Join(dir, name, "topology.json"))
	if err != nil {
		t.Fatal(err)
	}

	j := NewJob(layoutOf(file), nil)
	j.Take(rows.Ranks, rows.Raws.AppendTo(nil))
	return j, true
}

// layoutOf reads stages off the pp groups and replicas off their order.
func layoutOf(file *topology.File) *frame.Layout {
	stages, replicas := map[int]int32{}, map[int]int32{}
	replica := int32(0)
	for _, g := range file.Groups {
		if g.Dim != "pp" {
			continue
		}

		for stage, rank := range g.Ranks {
			stages[rank], replicas[rank] = int32(stage), replica
		}

		replica++
	}

	l := &frame.Layout{Ranks: slices.Sorted(maps.Keys(stages))}
	for _, rank := range l.Ranks {
		l.Role, l.Replica = append(l.Role, stages[rank]), append(l.Replica, replicas[rank])
	}

	for stage := range slices.Max(l.Role) + 1 {
		l.Roles = append(l.Roles, frame.Role{Stage: int(stage)})
	}

	return l
}

// TestTraces holds S to the published figures: 3 % with the backward pass
// recorded, 10 % from the five kinds alone, and the culprit to the truth.
func TestTraces(t *testing.T) {
	tests := []struct {
		name, job string
		s, within float64
		rank      int // with the largest S, -1 none
		stage     int
	}{
		{"AR-1-full", "ar-job", 1.97, 0.03, 0, 0},
		{"AR-1", "ar-job", 1.97, 0.10, 0, 0},
		{"ST-full", "st-job", 1.18, 0.03, -1, 3},
		{"ST", "st-job", 1.18, 0.10, -1, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j, ok := load(t, tt.name, tt.job)
			if !ok {
				return
			}

			r, err := j.Replay([]Repair{{Name: "node-0", Ranks: []int{0}, Slowdown: 2.36}}, nil)
			if err != nil {
				t.Fatal(err)
			}

			t.Logf("S %.3f fidelity %.3f steps %d skipped %d kinds %.3v M_W %.2f M_S %.2f stages %.3v replicas %.3v gain0 %.2f",
				r.Slowdown, r.Fidelity, r.Steps, r.Skipped, r.ByKind, r.MW, r.MS, r.ByStage, r.ByReplica, r.Gain[0])
			if math.Abs(r.Slowdown/tt.s-1) > tt.within {
				t.Errorf("S = %.3f, want %.2f within %.0f %%", r.Slowdown, tt.s, 100*tt.within)
			}

			if got := largest(r.ByStage); got != tt.stage {
				t.Errorf("largest S of a stage is stage %d's, want %d", got, tt.stage)
			}

			if tt.rank >= 0 && largest(r.ByRank) != tt.rank {
				t.Errorf("largest S of a rank is rank %d's, want %d", largest(r.ByRank), tt.rank)
			}

			if x := r.Repaired["node-0"]; tt.rank == 0 && (math.Abs(x-0.49) > 0.03 || x != r.Together) {
				t.Errorf("rank 0 repaired saves %.3f, together %.3f, want 0.49", x, r.Together)
			}
		})
	}
}

func largest(m map[int]float64) int {
	best, at := -1, 0.0
	for k, v := range m {
		if v > at || v == at && k < best {
			best, at = k, v
		}
	}

	return best
}
