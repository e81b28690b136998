package frame

import (
	"cmp"
	"slices"
)

// Transfer is the communication of one group in one window of steps. The
// shortest member's time is the transfer itself: whoever came last waited for
// nobody. For send and recv that holds for pairs only.
type Transfer struct {
	Name     string // of the topology group with the same ranks, else the communicator's
	Dim      string // tp, pp, dp, cp, ep, "" unknown
	Op       string
	Attempt  int
	From     int64 // first step of the window
	To       int64 // last
	Repeat   int
	Size     int       // ranks of the group, recorded or not; 0 unknown
	Rows     []int32   // ascending
	Seconds  []float32 // per step, of each of Rows
	Quickest []float32 // seconds of the quickest call of each of Rows, NaN unknown
	Counts   []float32 // calls in the window, of each of Rows
	Bytes    float64   // per step and rank
	Calls    float64   // per step and rank
	Steps    int       // most steps that a rank had in the window
}

// P2P reports whether an op goes from one rank to another, without the rest of its group.
func P2P(op string) bool { return op == "send" || op == "recv" || op == "sendrecv" }

// Shortest returns the shortest member's seconds per step, the transfer.
func (t *Transfer) Shortest() float32 { return slices.Min(t.Seconds) }

// QuickestCall returns the seconds of the quickest call of all rows, NaN where none is known.
func (t *Transfer) QuickestCall() float32 {
	least := NaN
	for _, x := range t.Quickest {
		if x == x && !(least <= x) {
			least = x
		}
	}

	return least
}

// Finish orders the rows, drops what came twice and averages the volume.
func (t *Transfer) Finish() {
	n := float64(len(t.Rows))
	t.Bytes, t.Calls = t.Bytes/n, t.Calls/n
	if slices.IsSortedFunc(t.Rows, func(a, b int32) int { return cmp.Or(cmp.Compare(a, b), -1) }) {
		return // without twins
	}

	order := make([]int, len(t.Rows))
	for i := range order {
		order[i] = i
	}

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.Rows[a], t.Rows[b]) })
	order = slices.CompactFunc(order, func(a, b int) bool { return t.Rows[a] == t.Rows[b] })
	rows, secs, quickest, counts := make([]int32, len(order)), make([]float32, len(order)), make([]float32, len(order)), make([]float32, len(order))
	for i, o := range order {
		rows[i], secs[i], quickest[i], counts[i] = t.Rows[o], t.Seconds[o], t.Quickest[o], t.Counts[o]
	}

	t.Rows, t.Seconds, t.Quickest, t.Counts = rows, secs, quickest, counts
}
