package whatif

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// TestPlay_AsByWalking holds a play in one pass to one that walks from rank to rank, on
// random jobs.
func TestPlay_AsByWalking(t *testing.T) {
	longer := func(o *op) int64 { return o.own * int64(1+(int(o.rank)+int(o.class))%3) }
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		j := randomJob(rng, 2+rng.IntN(12), 1+rng.IntN(3), 5+rng.IntN(40))
		for _, of := range j.complete() {
			w, s := both(j, of)
			if s == nil {
				t.Fatalf("seed %d: a step has no graph", seed)
			}

			for name, choose := range map[string]func(*op) int64{"recorded": asRecorded, "longer": longer} {
				if got, want := s.play(choose), w.play(choose); got != want || got == 0 {
					t.Fatalf("seed %d, durations as %s: %d ns in one pass, %d ns by walking", seed, name, got, want)
				}
			}
		}
	}
}

// TestGraphs_LeaveOutWhatDoesNotMatch: a member that never comes holds up the others.
func TestGraphs_LeaveOutWhatDoesNotMatch(t *testing.T) {
	meet := func(step int64, rank uint32, group string, at int64) row.Record {
		return row.Record{Step: step, Rank: rank, Kind: "Communication", Op: "allreduce", Group: group, StartNs: at, DurNs: 5e6, ExposedNs: -1}
	}
	j := NewJob(&frame.Layout{}, nil)
	j.Take(nil, []row.Record{
		meet(1, 0, "a", 1e9), meet(1, 0, "b", 2e9), meet(1, 1, "a", 1e9), meet(1, 1, "b", 2e9),
		meet(2, 0, "a", 1e9), meet(2, 0, "b", 2e9), meet(2, 1, "b", 1e9), meet(2, 1, "a", 2e9), // each waits for the other
	})
	r, err := j.Replay(nil, nil)
	if err != nil || r.Steps != 1 || r.Skipped != 1 {
		t.Errorf("%+v, %v; want one step replayed and one left out", r, err)
	}
}

// TestReplay_HostWithoutPeers: a host's delay is told by its peers, phase by phase; where there is none
// that is well its slowdown counts.
func TestReplay_HostWithoutPeers(t *testing.T) {
	job := func() *Job {
		j := NewJob(&frame.Layout{}, nil)
		for step := range int64(4) {
			for rank := range uint32(2) {
				r := row.Record{Step: step, Rank: rank, Kind: "backward", StartNs: step * 1e9, DurNs: int64(1+rank) * 1e8, ExposedNs: -1}
				meet := row.Record{Step: step, Rank: rank, Kind: "Communication", Op: "allreduce", Group: "dp", StartNs: r.StartNs + r.DurNs, ExposedNs: -1}
				meet.DurNs = step*1e9 + 201e6 - meet.StartNs
				j.Take(nil, []row.Record{r, meet, {Step: step, Rank: rank, Kind: "Step", StartNs: r.StartNs, DurNs: 201e6, ExposedNs: -1}})
			}
		}

		return j
	}
	for _, c := range []struct {
		name    string
		repairs []Repair
	}{
		{"with a peer", []Repair{{Name: "a", Ranks: []int{1}, Slowdown: 1, Host: true}}},
		{"without", []Repair{{Name: "a", Ranks: []int{0, 1}, Slowdown: 2, Host: true}}},
		{"with one that is slow as well", []Repair{{Name: "a", Ranks: []int{1}, Slowdown: 2, Host: true}, {Name: "b", Ranks: []int{0}, Slowdown: 1, Host: true}}},
	} {
		r, err := job().Replay(c.repairs, nil)
		if err != nil || r.Repaired["a"] < 0.45 || r.Repaired["a"] > 0.55 {
			t.Errorf("%s: %+v, %v; want a step of half the length", c.name, r, err)
		}
	}
}

// BenchmarkPlay is one play of a step of 512 ranks, in one pass over its list and by
// walking from rank to rank.
func BenchmarkPlay(b *testing.B) {
	j := randomJob(rand.New(rand.NewPCG(1, 1)), 512, 1, 4000)
	w, s := both(j, j.complete()[0])
	for name, play := range map[string]func(func(*op) int64) int64{"pass": s.play, "walk": w.play} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				play(asRecorded)
			}

			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(s.ops)), "ns/operation")
		})
	}
}

// randomJob makes steps in which random groups of the ranks meet, one group after the
// other: all at once, in pairs that send and receive in one batch, or beside compute.
func randomJob(rng *rand.Rand, ranks, steps, meetings int) *Job {
	j := NewJob(&frame.Layout{}, nil)
	for step := range int64(steps) {
		now := make([]int64, ranks)
		var records []row.Record
		add := func(r row.Record) {
			r.Step = step
			records = append(records, r)
		}
		for rank := range ranks {
			now[rank] = 1e12
			add(row.Record{Rank: uint32(rank), Kind: "backward", StartNs: 1e12, DurNs: 1}) // gaps are no compute
		}

		for m := range meetings {
			members := rng.Perm(ranks)[:2+rng.IntN(min(ranks-1, 8))]
			kind := rng.IntN(3)
			if kind == 1 {
				members = members[:2]
			}

			var last int64
			for _, rank := range members {
				took := int64(1e4 + rng.IntN(1e6))
				add(row.Record{Rank: uint32(rank), Kind: "FP", StartNs: now[rank], DurNs: took})
				now[rank] += took
				last = max(last, now[rank])
			}

			end := last + int64(1e4+rng.IntN(1e5))
			for i, rank := range members {
				r := row.Record{Rank: uint32(rank), Kind: "Communication", Group: fmt.Sprint("g", m%5), StartNs: now[rank], DurNs: end - now[rank], ExposedNs: -1}
				switch kind {
				case 0:
					r.Group, r.Op = fmt.Sprint(m), "allreduce"
				case 1:
					for _, op := range []string{"send", "recv"} {
						r.Group, r.Op, r.Peer = fmt.Sprint(m), op, int32(1-i)
						add(r)
						r.StartNs, r.DurNs = r.StartNs+100, r.DurNs-100
					}

					if j.at[rank] == nil {
						j.at[rank] = map[record.Word]int32{}
					}

					j.at[rank][j.groups.Add(r.Group)] = int32(i)
					now[rank] = end
					continue
				case 2:
					r.Group, r.Op, r.ExposedNs = fmt.Sprint(m), "reducescatter", int64(rng.IntN(int(r.DurNs)))
					now[rank] = end - r.ExposedNs
				}

				add(r)
				if kind == 0 {
					now[rank] = end
				}
			}
		}

		j.Take(nil, records)
	}

	return j
}

// walk is a step's programs, each in its rank's own order: the obvious way to play them.
type walk struct {
	programs [][]op
	members  []int
}

// both are a step to be walked, and its graph.
func both(j *Job, of *recorded) (w walk, s *step) {
	b := j.build(of, j.ranks())
	for _, p := range b.programs {
		w.programs = append(w.programs, slices.Clone(p))
	}

	for i := range b.meetings {
		w.members = append(w.members, b.meetings[i].members)
	}

	for _, p := range w.programs {
		for k := range p {
			if o := &p[k]; o.verb != computes {
				o.own = b.meetings[o.meet].transfer()
			}
		}
	}

	return w, b.step()
}

// play lets each rank go on until it has to wait, round after round.
func (w walk) play(choose func(*op) int64) int64 {
	now, at := make([]int64, len(w.programs)), make([]int, len(w.programs))
	came, latest := make([]int, len(w.members)), make([]int64, len(w.members))
	for moved := true; moved; {
		moved = false
		for i, p := range w.programs {
		rank:
			for ; at[i] < len(p); at[i]++ {
				switch o := &p[at[i]]; {
				case o.verb == computes:
					now[i] += choose(o)
				case o.verb == comes:
					came[o.meet]++
					latest[o.meet] = max(latest[o.meet], now[i])
				case came[o.meet] < w.members[o.meet]:
					break rank
				default:
					now[i] = max(now[i], latest[o.meet]+choose(o))
				}

				moved = true
			}
		}
	}

	return slices.Max(now)
}
