package rollup

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Selection says which raw ranges become rows of the table records. What does not
// is counted as summarised.
type Selection uint8

// Light selects every kind but Communication.
const (
	Light Selection = iota
	None
	All
	// Deep selects all of the steps in which Communication was recorded: what is
	// stored raw is where and while it is switched on.
	Deep
)

// selectionWords are the words of --records, by selection.
var selectionWords = [...]string{Light: "light", None: "none", All: "all", Deep: "deep"}

// ParseSelection returns the selection that --records names.
func ParseSelection(word string) (Selection, bool) {
	i := slices.Index(selectionWords[:], cmp.Or(word, selectionWords[Light]))
	return Selection(max(i, 0)), i >= 0
}

// String returns the word of --records.
func (s Selection) String() string { return selectionWords[s] }

// takes reports whether ranges of the kind become rows; deep is whether
// Communication was recorded beside it.
func (s Selection) takes(k record.Kind, deep bool) bool {
	return s == All || s == Light && k.Light() || s == Deep && deep
}
