package depth

import (
	"cmp"
	"maps"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// namedNodes returns who the verdict blames now, and for what.
func namedNodes(v *verdict.Verdict) map[string]string {
	named := map[string]string{}
	for _, n := range v.Nodes {
		if n.State != verdict.Recovered {
			named[n.Node] = n.Cause
		}
	}

	return named
}

// suspectNodes returns the nodes of the suspect ranks, in order of the ranks.
func suspectNodes(s detect.Suspects) (nodes []string) {
	for _, r := range s.Rows {
		if node := s.Layout.NodeOf(int(r)); node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}

	return nodes
}

// news leaves out what was settled before and is still called the same.
func (c *inquiry) news(nodes []string, named map[string]string) []string {
	return slices.DeleteFunc(nodes, func(n string) bool {
		cause, ok := c.decided[n]
		return ok && cause == named[n]
	})
}

// peers returns the nodes to look at beside the suspects: those that share a role
// with them, which they are compared with, then those of the same groups, which wait for
// them; without suspects those of whole groups, the largest group first. Nodes that share
// most come first.
func peers(s detect.Suspects, suspects []string) []string {
	l := s.Layout
	if l == nil {
		return nil
	}

	is := func(r int32) bool { return slices.Contains(suspects, l.NodeOf(int(r))) }
	shares := map[int32]int{}
	// By node: in how many roles and groups of a suspect it is, groups counted twice.
	count := func(rows []int32, weight int) {
		if len(suspects) > 0 && !slices.ContainsFunc(rows, is) {
			return
		}

		for _, r := range rows {
			if k := l.Node[r]; k >= 0 && l.Present[r] && !is(r) {
				shares[k] += weight
			}
		}
	}
	for i := range l.Roles {
		count(l.Roles[i].Rows, 1)
	}

	for i := range l.Groups {
		count(l.Groups[i].Rows, 2)
	}

	order := slices.SortedFunc(maps.Keys(shares), func(a, b int32) int {
		return cmp.Or(-cmp.Compare(shares[a], shares[b]), cmp.Compare(a, b))
	})
	nodes := make([]string, len(order))
	for i, k := range order {
		nodes[i] = l.Nodes[k]
	}

	return nodes
}
