package ageing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

func TestPlan(t *testing.T) {
	seg := func(name int, size int64, shipped, held bool) candidate {
		info := segment.Info{Name: fmt.Sprint(name), Number: int64(name), Size: size, ModTime: time.Unix(int64(name), 0)}
		return candidate{Info: info, shipped: shipped, held: held}
	}
	of := func(infos ...segment.Info) (all []candidate) {
		for _, i := range infos {
			all = append(all, candidate{Info: i})
		}

		return all
	}
	var ten []candidate
	for i := range 10 {
		ten = append(ten, seg(i, 10, i >= 8, i == 9))
	}

	for _, c := range []struct {
		name  string
		tree  tree
		limit int64
		want  string
	}{
		{"under_the_cap", tree{segments: ten}, 100, "[]"},
		{"one_byte_over_takes_a_fifth", tree{segments: ten, other: 1}, 100, "[[8 0]]"},
		{"room_counts", tree{segments: ten, room: 1}, 100, "[[8 0]]"},
		{"passes_repeat", tree{segments: ten}, 75, "[[8 0] [1]]"},
		{"a_few_files_lose_one", tree{segments: ten[:4]}, 39, "[[0]]"},
		{"held_ones_stay_though_it_does_not_help", tree{segments: []candidate{seg(1, 50, true, true), seg(2, 50, false, false)}}, 10, "[[1]]"},
		{"foreign_bytes_alone_take_all", tree{segments: ten[:2], other: 1000}, 100, "[[0] [1]]"},
		{"accounted_ones_go_at_once", tree{segments: []candidate{seg(1, 10, true, false), {Info: segment.Info{Name: "2", Size: 10}, accounted: true}}}, 100, "[[1]]"},
		{"accounted_ones_make_room", tree{segments: []candidate{seg(1, 10, true, false), {Info: segment.Info{Name: "2", Size: 10}, accounted: true}}}, 10, "[[1]]"},
		{"nothing_there", tree{room: 1}, 0, "[]"},
		{"mtime_before_name", tree{segments: of(
			segment.Info{Name: "1", Number: 1, Size: 1, ModTime: time.Unix(9, 0)}, segment.Info{Name: "2", Number: 2, Size: 1, ModTime: time.Unix(3, 0)},
		)}, 1, "[[1]]"},
		{"name_by_number", tree{segments: of(segment.Info{Name: "10", Number: 10, Size: 1}, segment.Info{Name: "9", Number: 9, Size: 1})}, 1, "[[1]]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fmt.Sprint(plan(&c.tree, c.limit)); got != c.want {
				t.Errorf("Plan=%s, want %s", got, c.want)
			}
		})
	}
}

// naive is the rule as the user says it, one file at a time.
func naive(t tree, limit int64) []string {
	rest := slices.Clone(t.segments)
	var gone []string
	for {
		sum := t.other + t.room
		for _, s := range rest {
			sum += s.Size
		}

		if sum <= limit {
			return gone
		}

		n := max(1, len(rest)*20/100)
		for range n {
			first := -1
			for i, s := range rest {
				if !s.held && (first < 0 || before(s, rest[first])) {
					first = i
				}
			}

			if first < 0 {
				return gone
			}

			gone = append(gone, id(rest[first]))
			rest = slices.Delete(rest, first, first+1)
		}
	}
}

func id(s candidate) string { return fmt.Sprint(s.dir.Job, "/", s.dir.Rank, "/", s.Name) }

func before(a, b candidate) bool {
	switch {
	case a.shipped != b.shipped:
		return a.shipped
	case !a.ModTime.Equal(b.ModTime):
		return a.ModTime.Before(b.ModTime)
	case a.Number != b.Number:
		return a.Number < b.Number
	case a.Name != b.Name:
		return a.Name < b.Name
	case a.dir.Job != b.dir.Job:
		return a.dir.Job < b.dir.Job
	}

	return a.dir.Rank < b.dir.Rank
}

func TestPlan_FollowsTheNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := tree{other: rapid.Int64Range(0, 200).Draw(t, "other")}
		seen := make(map[string]bool)
		for range rapid.IntRange(0, 60).Draw(t, "segments") {
			n := rapid.Int64Range(0, 40).Draw(t, "number")
			s := candidate{
				dir: segment.RankDir{RankID: record.RankID{Job: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "job"), Rank: rapid.IntRange(0, 3).Draw(t, "rank")}},
				Info: segment.Info{
					Name: fmt.Sprint(n) + rapid.SampledFrom([]string{"", ".zst"}).Draw(t, "ending"), Number: n,
					Size: rapid.Int64Range(0, 50).Draw(t, "size"), ModTime: time.Unix(rapid.Int64Range(0, 20).Draw(t, "mtime"), 0),
				},
				shipped: rapid.Bool().Draw(t, "shipped"), held: rapid.Bool().Draw(t, "held"),
			}
			if !seen[id(s)] {
				seen[id(s)] = true
				tree.segments = append(tree.segments, s)
			}
		}

		limit := rapid.Int64Range(0, 1500).Draw(t, "limit")
		tree.room = rapid.Int64Range(0, 100).Draw(t, "room")
		before := slices.Clone(tree.segments)
		var got []string
		for _, pass := range plan(&tree, limit) {
			for _, i := range pass {
				if tree.segments[i].held {
					t.Fatalf("%s is held", id(tree.segments[i]))
				}

				got = append(got, id(tree.segments[i]))
			}
		}

		if want := naive(tree, limit); !slices.Equal(got, want) {
			t.Fatalf("Plan takes %v\nthe rule takes %v", got, want)
		}

		if !slices.Equal(before, tree.segments) {
			t.Fatal("Plan changed its input")
		}
	})
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"5000MB": 5000e6, "10MiB": 10 << 20, "1 GB": 1e9, "1.5GiB": 3 << 29, "4096": 4096, "7b": 7, " 2kB ": 2000, "0": 0,
		"9223372036854775807": 1<<63 - 1, "1tib": 1 << 40, "0.5KiB": 512,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q)=%d, %v; want %d", in, got, err, want)
		}
	}

	for _, in := range []string{"", "MB", "10M", "10 K", "-1MB", "1e3", "1.2.3MB", ".", "10 parsecs", "9223372036854775808", "1000000000TB", "0.3B", "1,5GB", "10MB5"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q)=%d, want an error", in, got)
		}
	}
}
