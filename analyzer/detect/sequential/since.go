package sequential

import (
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// sinceBlock lets the slow time of unit r begin with the last k blocks, and with those before that were slow by
// themselves as well: who was so from its first step on is another kind of device, not one that got slow.
func (t *Test) sinceBlock(r, k int, from float32) {
	known := min(int(t.block[r]), maxBlocks)
	for k < known && t.kept(r)[(int(t.block[r])-k-1)%maxBlocks] > from {
		k++
	}

	at := t.count - k*threshold.BlockSteps
	if k == int(t.block[r]) {
		at = int(t.first[r])
	}

	t.since[r], t.sinceAt[r] = t.label(at), int32(at)
}

// sinceWithin lets the slow time of unit r begin in its last window, with the first step from which on most are above from, where
// that is not all of the window.
func (t *Test) sinceWithin(r int, from float32) {
	v := t.Values(r, threshold.Window)
	at, slow := len(v), 0
	for i, x := range slices.Backward(v) {
		if x > from {
			slow++
			if float64(slow) >= threshold.SlowShare*float64(len(v)-i) {
				at = i
			}
		}
	}

	if at > 0 && at < len(v) {
		t.sinceAt[r] = int32(t.count - (len(v) - at))
		t.since[r] = t.label(int(t.sinceAt[r]))
	}
}
