package feed

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/row"
)

// digest is a hash of all columns of a frame, their order, values and layouts.
func digest(f *frame.Frame) string {
	h := fnv.New64a()
	say := func(v ...any) { fmt.Fprintln(h, v...) }
	say(f.Ranks, f.Attempts, f.WorldSize, f.Overlap)
	var last *frame.Layout
	for _, c := range f.Columns {
		if l := c.Layout; l != last {
			last = l
			say(l.Attempt, l.World, l.Present, l.Incarnation, l.Fresh, l.Node, l.Nodes, l.Role, l.Replica, l.Stages, l.From, l.Certain)
			for _, g := range l.Groups {
				say(g.Name, g.Dim, g.Rows, g.Size, g.Class)
			}
		}

		say(c.Attempt, c.Step, c.Repeat, c.StartNs, c.Off, c.Passes)
		for m, v := range c.V {
			numbers(h, m, v)
		}
	}

	// Those of one window come in any order.
	windows := slices.SortedFunc(slices.Values(f.Transfers), func(a, b frame.Transfer) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.To, b.To), cmp.Compare(a.Repeat, b.Repeat), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Op, b.Op), slices.Compare(a.Rows, b.Rows))
	})
	for i := range windows {
		t := &windows[i]
		say(t.Name, t.Dim, t.Op, t.Attempt, t.From, t.To, t.Repeat, t.Size, t.Rows, t.Steps)
		numbers(h, 0, t.Seconds)
	}

	return fmt.Sprintf("%016x", h.Sum64())
}

// numbers hashes values; any NaN is one.
func numbers(h hash.Hash, m int, v []float32) {
	if v == nil {
		return
	}

	fmt.Fprintln(h, m)
	for _, x := range v {
		if x != x {
			x = -1
		}

		_ = binary.Write(h, binary.LittleEndian, x)
	}
}

// recordedJobs are the simulated jobs whose columns are written down.
func recordedJobs(visit func(name string, rows row.Rows, cfg simulate.Config)) error {
	for k, name := range append(simulate.Names(), simulate.Families()...) {
		cfg, err := simulate.Sized(name, uint64(k)+31, 24)
		if err != nil {
			return err
		}

		rows, _, err := simulate.Rows(cfg)
		if err != nil {
			return err
		}

		visit(name, rows, cfg)
	}

	return nil
}

// TestColumnsAreThoseRecorded compares the columns of simulated jobs, all scenarios and
// families, with those that testdata/columns.txt names: what made them, but for the last nine, collected all
// rows before it put them together. The order in which rows come changes nothing, nor
// does it that some come twice, or that few fit into memory.
func TestColumnsAreThoseRecorded(t *testing.T) {
	data, err := os.ReadFile("testdata/columns.txt")
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, sum, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[name] = sum
	}

	seen := 0
	err = recordedJobs(func(name string, rows row.Rows, cfg simulate.Config) {
		seen++
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(len(name)), 1))
			for _, shuffled := range []bool{false, true} {
				h := &History{}
				add := []func(){}
				for i := range rows.Ranks {
					h.AddRank(&rows.Ranks[i])
				}

				for i := range rows.Steps {
					add = append(add, func() { h.AddStep(&rows.Steps[i]) })
				}

				for i := range rows.Communications {
					add = append(add, func() { h.AddCommunication(&rows.Communications[i]) })
				}

				if shuffled {
					h.rows.limit = 1 << 17 // many parts
					rng.Shuffle(len(rows.Steps), func(a, b int) { add[a], add[b] = add[b], add[a] })
					add = append(add, add[:min(len(rows.Steps), 50)]...)
				}

				for _, f := range add {
					f()
				}

				f, err := h.Frame(simulate.Topology(cfg))
				if err != nil {
					t.Fatal(err)
				}

				if got := digest(f); got != want[name] {
					t.Errorf("shuffled %v: columns %s, recorded %s", shuffled, got, want[name])
				}
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}

	if seen != len(want) {
		t.Errorf("%d jobs, %d recorded", seen, len(want))
	}
}
