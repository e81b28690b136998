package chrome

// maxLanes bounds the lanes of a track; what fits none of them goes onto the last.
const maxLanes = 64

// lane is one line of a track on which every two ranges nest or follow each other.
// Perfetto leaves out a range that does neither (its statistic
// slice_drop_overlapping_complete_event), and collectives that were started without
// waiting do neither.
type lane struct {
	tid  int
	last int64   // start of the latest range, ns
	ends []int64 // of the ranges around the latest and its own, outermost first, ns
}

// take places a range of [start, end) ns on the lane, if it fits and is not before
// the latest.
func (l *lane) take(start, end int64) bool {
	around := len(l.ends)
	for around > 0 && l.ends[around-1] <= start {
		around--
	}

	if start < l.last || around > 0 && l.ends[around-1] < end {
		return false
	}

	l.last, l.ends = start, append(l.ends[:around], end)
	return true
}
