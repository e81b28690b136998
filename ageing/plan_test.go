package ageing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	seg := func(name int, size int64, shipped, held bool) Segment {
		return Segment{Job: "j", Name: fmt.Sprint(name), Number: int64(name), Size: size, ModTime: time.Unix(int64(name), 0), Shipped: shipped, Held: held}
	}
	var ten []Segment
	for i := range 10 {
		ten = append(ten, seg(i, 10, i >= 8, i == 9))
	}

	for _, c := range []struct {
		name        string
		tree        Tree
		limit, room int64
		want        string
	}{
		{"under_the_cap", Tree{Segments: ten}, 100, 0, "[]"},
		{"one_byte_over_takes_a_fifth", Tree{Segments: ten, Other: 1}, 100, 0, "[[8 0]]"},
		{"room_counts", Tree{Segments: ten}, 100, 1, "[[8 0]]"},
		{"passes_repeat", Tree{Segments: ten}, 75, 0, "[[8 0] [1]]"},
		{"a_few_files_lose_one", Tree{Segments: ten[:4]}, 39, 0, "[[0]]"},
		{"held_ones_stay_though_it_does_not_help", Tree{Segments: []Segment{seg(1, 50, true, true), seg(2, 50, false, false)}}, 10, 0, "[[1]]"},
		{"foreign_bytes_alone_take_all", Tree{Segments: ten[:2], Other: 1000}, 100, 0, "[[0] [1]]"},
		{"nothing_there", Tree{}, 0, 1, "[]"},
		{"mtime_before_name", Tree{Segments: []Segment{
			{Name: "1", Number: 1, Size: 1, ModTime: time.Unix(9, 0)}, {Name: "2", Number: 2, Size: 1, ModTime: time.Unix(3, 0)},
		}}, 1, 0, "[[1]]"},
		{"name_by_number", Tree{Segments: []Segment{{Name: "10", Number: 10, Size: 1}, {Name: "9", Number: 9, Size: 1}}}, 1, 0, "[[1]]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fmt.Sprint(plan(&c.tree, c.limit, c.room)); got != c.want {
				t.Errorf("Plan=%s, want %s", got, c.want)
			}
		})
	}
}

// naive is the rule as the user says it, one file at a time.
func naive(t Tree, limit, room int64) []string {
	rest := slices.Clone(t.Segments)
	var gone []string
	for {
		sum := t.Other + room
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
				if !s.Held && (first < 0 || before(s, rest[first])) {
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

func id(s Segment) string { return fmt.Sprint(s.Job, "/", s.Rank, "/", s.Name) }

func before(a, b Segment) bool {
	switch {
	case a.Shipped != b.Shipped:
		return a.Shipped
	case !a.ModTime.Equal(b.ModTime):
		return a.ModTime.Before(b.ModTime)
	case a.Number != b.Number:
		return a.Number < b.Number
	case a.Name != b.Name:
		return a.Name < b.Name
	case a.Job != b.Job:
		return a.Job < b.Job
	}

	return a.Rank < b.Rank
}

func TestPlan_FollowsTheNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := Tree{Other: rapid.Int64Range(0, 200).Draw(t, "other")}
		seen := make(map[string]bool)
		for range rapid.IntRange(0, 60).Draw(t, "segments") {
			n := rapid.Int64Range(0, 40).Draw(t, "number")
			s := Segment{
				Job: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "job"), Rank: rapid.IntRange(0, 3).Draw(t, "rank"),
				Name: fmt.Sprint(n) + rapid.SampledFrom([]string{"", ".zst"}).Draw(t, "ending"), Number: n,
				Size: rapid.Int64Range(0, 50).Draw(t, "size"), ModTime: time.Unix(rapid.Int64Range(0, 20).Draw(t, "mtime"), 0),
				Shipped: rapid.Bool().Draw(t, "shipped"), Held: rapid.Bool().Draw(t, "held"),
			}
			if !seen[id(s)] {
				seen[id(s)] = true
				tree.Segments = append(tree.Segments, s)
			}
		}

		limit, room := rapid.Int64Range(0, 1500).Draw(t, "limit"), rapid.Int64Range(0, 100).Draw(t, "room")
		before := slices.Clone(tree.Segments)
		var got []string
		for _, pass := range plan(&tree, limit, room) {
			for _, i := range pass {
				if tree.Segments[i].Held {
					t.Fatalf("%s is held", id(tree.Segments[i]))
				}

				got = append(got, id(tree.Segments[i]))
			}
		}

		if want := naive(tree, limit, room); !slices.Equal(got, want) {
			t.Fatalf("Plan takes %v\nthe rule takes %v", got, want)
		}

		if !slices.Equal(before, tree.Segments) {
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
