package row

// A window of Communication that a pass over the files of a live job stored as it
// stood is completed by a row of its own: the sums of what came since, under a Repeat
// that no writer counts up to. Its bits: complement, then the window's own Repeat
// (7 bits), then how many complements the window had (8 bits).
const (
	complement     = 1 << 15
	mostRepeat     = 1<<7 - 1
	mostComplement = 1<<8 - 1
)

// IsComplement reports whether Repeat is that of a complement.
func IsComplement(repeat uint16) bool { return repeat >= complement }

// BaseRepeat returns the Repeat of the window that a row belongs to.
func BaseRepeat(repeat uint16) uint16 {
	if IsComplement(repeat) {
		return repeat >> 8 & mostRepeat
	}

	return repeat
}

// Complete returns what c holds beyond the sums of the rows that are stored of its
// window, as the row that completes them; false when nothing is missing, or the
// window can't be completed any more. rows is the number of those rows.
func (c *Communication) Complete(stored *Communication, rows uint64) (Communication, bool) {
	if rows == 0 || stored.Calls >= c.Calls || c.Repeat > mostRepeat || rows-1 > mostComplement {
		return Communication{}, false
	}

	rest := *c
	rest.Repeat = complement | c.Repeat<<8 | uint16(rows-1)
	rest.Calls -= stored.Calls
	rest.Steps -= min(rest.Steps, stored.Steps)
	rest.TotalNs -= stored.TotalNs
	rest.Bytes -= stored.Bytes
	return rest, true
}

// Add sums a row of the same window up.
func (c *Communication) Add(o *Communication) {
	c.Calls += o.Calls
	c.Steps += o.Steps
	c.TotalNs += o.TotalNs
	c.Bytes += o.Bytes
}
