package frame

import "strings"

// Names numbers strings in the order in which they come. The zero value is ready to use.
type Names struct {
	List []string // by number
	of   map[string]int32
}

// Number returns the number of a string, which it copies.
func (n *Names) Number(s string) int32 {
	k, ok := n.of[s]
	if !ok {
		if n.of == nil {
			n.of = map[string]int32{}
		}

		s, k = strings.Clone(s), int32(len(n.List))
		n.of[s], n.List = k, append(n.List, s)
	}

	return k
}
