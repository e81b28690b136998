package record

const (
	// mostWords bounds the table: a job has a few ops, dtypes and some dozen groups.
	mostWords = 1024
	// longestWord bounds what is kept: a communicator's name has about 40 bytes,
	// a path is seen once.
	longestWord = 128
)

// intern is a bounded table of strings. A full one begins anew: hostile input costs
// allocations, never memory.
type intern struct {
	words  map[string]string
	shorts *[shortSlots]short
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

	if s, known := t.words[string(b)]; known {
		return s
	}

	s := string(b)
	if len(s) > longestWord {
		return s
	}

	if t.words == nil || len(t.words) >= mostWords {
		t.words = make(map[string]string)
	}

	t.words[s] = s
	return s
}
