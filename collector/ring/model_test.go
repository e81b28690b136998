package ring

import (
	"fmt"
	"strings"
	"testing"
)

// The model checks the order of memory accesses by which a slot is published and
// given back, for every interleaving and every reordering that a processor with a
// weak memory (ARMv8) may make of them: an access is performed as soon as nothing
// that its order depends on is left before it, and then seen by both sides at once
// (ARMv8 is multi-copy atomic). It knows program order, one place at a time, loads
// that acquire, stores that release, and that a store waits for the branch it is
// under.

// place is a word of the model's memory.
type place uint8

const (
	head place = iota
	tail
	body // of the one slot, two words
)

// access is one load or store of a side.
type access struct {
	at      place
	store   bool
	ordered bool  // acquires, or releases
	after   []int // accesses whose value it, or the branch it is under, depends on
	value   func(seen []uint8) uint8
	run     func(seen []uint8) bool // false: the branch is not taken, the access is none
}

// before reports whether access j must be performed before a later access i.
func before(p []access, j, i int) bool {
	a, b := &p[j], &p[i]
	switch {
	case a.at == b.at, !a.store && a.ordered, b.store && b.ordered:
		return true
	}

	for _, d := range b.after {
		if d == j {
			return true
		}
	}

	return false
}

// state is a moment of a run: what both sides have performed, what they have seen,
// and the memory.
type state struct {
	done [2]uint32
	seen [2][12]uint8
	mem  [body + 2]uint8
}

// explore runs every order from s on and returns the first state in which wrong says
// what is wrong.
func explore(sides [2][]access, wrong func(*state) string) (found string, states int) {
	visited := make(map[state]bool)
	stack := []state{{}}
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if visited[s] {
			continue
		}

		visited[s] = true
		if w := wrong(&s); w != "" {
			return w, len(visited)
		}

		for side, p := range sides {
			for i := range p {
				if next, ok := perform(s, side, p, i); ok {
					stack = append(stack, next)
				}
			}
		}
	}

	return "", len(visited)
}

func perform(s state, side int, p []access, i int) (state, bool) {
	if s.done[side]&(1<<i) != 0 {
		return s, false
	}

	for j := range i {
		if s.done[side]&(1<<j) == 0 && before(p, j, i) {
			return s, false
		}
	}

	a, seen := &p[i], s.seen[side][:]
	s.done[side] |= 1 << i
	if a.run != nil && !a.run(seen) {
		return s, true
	}

	if a.store {
		s.mem[a.at] = a.value(seen)
		seen[i] = 1 // performed
	} else {
		seen[i] = s.mem[a.at] + 1
	}

	return s, true
}

// order says which accesses are ordered: what the mutants leave out.
type order struct{ head, headSeen, tail bool }

// writer publishes records numbers 0…n-1, each one if it finds room: it looks at the
// tail and stores two words of body and the head.
func writer(n int, o order) (p []access) {
	var published []func(seen []uint8) bool // of each record
	for k := range n {
		heads := func(seen []uint8) (h uint8) {
			for _, was := range published[:k] {
				if was(seen) {
					h++
				}
			}

			return h
		}
		look := len(p)
		room := func(seen []uint8) bool { return heads(seen) == seen[look]-1 }
		published = append(published, room)
		looks := []int{look}
		for j := range k {
			looks = append(looks, 4*j) // what was published before depends on earlier looks
		}

		p = append(p, access{at: tail, ordered: true})
		for word := range place(2) {
			p = append(p, access{at: body + word, store: true, after: looks, run: room, value: func(seen []uint8) uint8 { return heads(seen) + 1 }})
		}

		p = append(p, access{at: head, store: true, ordered: o.head, after: looks, run: room, value: func(seen []uint8) uint8 { return heads(seen) + 1 }})
	}

	return p
}

// reader takes up to n records: it looks at the head, copies the slot and moves the
// tail.
func reader(n int, o order) (p []access) {
	for k := range n {
		look := len(p)
		there := func(seen []uint8) bool { return seen[look] > uint8(k)+1 }
		p = append(p, access{at: head, ordered: o.headSeen})
		for word := range place(2) {
			// A load does not wait for the branch that it is under.
			p = append(p, access{at: body + word})
		}

		p = append(p, access{at: tail, store: true, ordered: o.tail, after: []int{look}, run: there, value: func([]uint8) uint8 { return uint8(k) + 1 }})
	}

	return p
}

// torn says which record below the head that the reader saw is not what was written.
func torn(n int) func(*state) string {
	return func(s *state) string {
		for k := range n {
			look := 4 * k
			all := uint32(0xF) << look
			if s.done[1]&all != all || s.seen[1][look] <= uint8(k)+1 {
				continue // not taken
			}

			want := uint8(k) + 1
			if a, b := s.seen[1][look+1]-1, s.seen[1][look+2]-1; a != want || b != want {
				return fmt.Sprintf("record %d reads %d %d", k, a, b)
			}
		}

		return ""
	}
}

// TestPublishInEveryOrder, R28: three records through a ring of one slot, so that
// each but the first overwrites another. With
// the orders that the code has every record that the reader takes is whole; each of
// them is needed.
func TestPublishInEveryOrder(t *testing.T) {
	const n = 3
	for name, o := range map[string]order{
		"as it is":                         {true, true, true},
		"head stored without release":      {false, true, true},
		"head loaded without acquire":      {true, false, true},
		"tail stored before the copy ends": {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			found, states := explore([2][]access{writer(n, o), reader(n, o)}, torn(n))
			t.Logf("%d states; found %q", states, found)
			if right := name == "as it is"; right != (found == "") {
				t.Errorf("found %q", found)
			}

			if strings.HasPrefix(name, "as") && states < 1000 {
				t.Errorf("only %d states", states)
			}
		})
	}
}
