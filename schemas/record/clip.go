package record

import (
	"strings"
	"unicode/utf8"
)

// Bounds of what a reader keeps of a text in a line, in bytes. A line may hold 1 MiB of
// it; TaskD's names have 254 at most, a communicator's some 40, a path on Linux 4095.
const (
	MaxWord = 1 << 10 // name, group, op, dtype, reason
	MaxPath = 4 << 10
)

// Clip returns s, or of one that is longer than most bytes its beginning, "~" and the
// HashID of the whole, most bytes at most: long names that differ at their ends stay
// different. It keeps nothing of a long s in memory.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}

	tail := "~" + HashID(s).String()
	n := most - len(tail)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}

	return strings.Clone(s[:n]) + tail
}

// ordinaryWords is what the words of a usual record take, in bytes.
const ordinaryWords = 128

// Weight is the memory of the record's words beyond what ordinary ones have: who holds records
// back bounds their number, and by this what long words add to it.
func (r *Record) Weight() int {
	return max(len(r.Name)+len(r.Op)+len(r.OpRaw)+len(r.Group)+len(r.Dtype)+len(r.Path)-ordinaryWords, 0)
}
