package record

import "hash/maphash"

const (
	internSlots  = 1024 // power of two; a job has a few ops, dtypes and some dozen groups
	internProbes = 4
	// internMax bounds what is kept: a communicator's name has about 40 bytes,
	// a path is seen once.
	internMax = 128
)

var seed = maphash.MakeSeed()

// intern is a bounded table of strings. A full neighbourhood evicts: hostile
// input costs allocations, never memory.
type intern struct {
	slots  *[internSlots]string
	shorts *[shortSlots]short
	evict  uint8
}

const shortSlots = 256

// short is a string of at most 15 bytes and the same bytes as two words, zeros
// behind them: together with its length they are its value.
type short struct {
	head, tail uint64
	s          string
}

// short returns the string with the bytes of b, at most 15, which head and tail
// hold. One place each: two strings that share one take turns, at the price of
// get.
func (t *intern) short(b []byte, head, tail uint64) string {
	if t.shorts == nil {
		t.shorts = new([shortSlots]short)
	}

	e := &t.shorts[(head^tail*3)*0x9e3779b97f4a7c15>>56]
	if e.head == head && e.tail == tail && len(e.s) == len(b) {
		return e.s
	}

	*e = short{head, tail, t.get(b)}
	return e.s
}

// get returns the string with the bytes of b.
func (t *intern) get(b []byte) string {
	if len(b) == 0 {
		return ""
	}

	if len(b) > internMax {
		return string(b)
	}

	if t.slots == nil {
		t.slots = new([internSlots]string)
	}

	h := maphash.Bytes(seed, b)
	for i := range uint64(internProbes) {
		s := &t.slots[(h+i)&(internSlots-1)]
		if *s == string(b) {
			return *s
		}

		if *s == "" {
			*s = string(b)
			return *s
		}
	}

	t.evict++
	s := &t.slots[(h+uint64(t.evict%internProbes))&(internSlots-1)]
	*s = string(b)
	return *s
}
