package simulate

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/laggard-dev/laggard/schemas/topology"
)

// Dimensions of groups, in the order in which identities list them.
const (
	dimTP = iota
	dimCP
	dimDP
	dimPP
	dimEP
	dimEmbd // first and last stage
	dimWorld
	dims

	dimOther = dimEmbd // rows have one column for this dimension and those behind it
)

var dimNames = [dims]string{"tp", "cp", "dp", "pp", "ep", "embd", "world"}

// group is a communicator.
type group struct {
	name  string
	dim   int
	ranks []int    // in group order
	ids   []uint32 // the same as rows have them, shared by all: of 8,192 ranks in one group each row would hold as many
	wide  bool     // has ranks on more than one host
}

// position is where a rank stands.
type position struct {
	t, c, d, p  int // positions in TP, CP, DP, PP
	host, local int
	groups      [dims]int // indexes of its groups, -1 = none
}

// layout is the ranks of one attempt: who is in which group, on which host. It stays as it
// is made.
type layout struct {
	shape  Shape
	n      int
	at     []position
	stages [][]int // ranks of each stage, TP neighbours side by side
	groups []group // the last one is that of all ranks
	hosts  []int
}

// nodeName is the name of a host.
func nodeName(host int) string { return "node-" + strconv.Itoa(host) }

// newLayout places the ranks; hosts[i] is the host of the i-th block of ranks,
// nil = in order.
func newLayout(s Shape, hosts []int) *layout {
	l := &layout{shape: s, n: s.World(), stages: make([][]int, s.PP)}
	l.at = make([]position, l.n)
	if hosts == nil {
		for i := range s.hosts() {
			hosts = append(hosts, i)
		}
	}

	l.hosts = hosts
	for p := range s.PP {
		for d := range s.DP {
			for c := range s.CP {
				for t := range s.TP {
					r := l.rank(t, c, d, p)
					l.stages[p] = append(l.stages[p], r)
					l.at[r] = position{
						t: t, c: c, d: d, p: p, host: hosts[r/s.RanksPerNode], local: r % s.RanksPerNode,
						groups: [dims]int{-1, -1, -1, -1, -1, -1, -1},
					}
				}
			}
		}
	}

	l.group()
	return l
}

// rank returns the global rank at a position.
func (l *layout) rank(t, c, d, p int) int {
	s := l.shape
	if s.Order == "tp-cp-pp-dp" {
		return t + s.TP*(c+s.CP*(p+s.PP*d))
	}

	return t + s.TP*(c+s.CP*(d+s.DP*p))
}

// group makes the communicators. Those of data parallelism hold the context-parallel ranks, too:
// all of them reduce the same gradients. A fault names a group, so names stay as they are.
func (l *layout) group() {
	s := l.shape
	for p := range s.PP {
		for d := range s.DP {
			for c := range s.CP {
				l.add("", dimTP, s.TP, func(i int) int { return l.rank(i, c, d, p) })
			}

			for t := range s.TP {
				l.add("", dimCP, s.CP, func(i int) int { return l.rank(t, i, d, p) })
			}
		}

		for t := range s.TP {
			l.add(l.dpName(p, t), dimDP, s.DP*s.CP, func(i int) int { return l.rank(t, i%s.CP, i/s.CP, p) })
			for c := range s.CP {
				for e := 0; e < s.DP && s.EP > 1; e += s.EP {
					l.add("", dimEP, s.EP, func(i int) int { return l.rank(t, c, e+i, p) })
				}
			}
		}
	}

	n := 0
	for d := range s.DP {
		for c := range s.CP {
			for t := range s.TP {
				l.add("pp-"+strconv.Itoa(n), dimPP, s.PP, func(i int) int { return l.rank(t, c, d, i) })
				if s.PP > 1 {
					l.add("embd-"+strconv.Itoa(n), dimEmbd, 2, func(i int) int { return l.rank(t, c, d, i*(s.PP-1)) })
				}

				n++
			}
		}
	}

	l.add("world", dimWorld, l.n, func(i int) int { return i })
}

// add makes one group of size ranks, none when there is nobody to talk to. A group
// without a name is called by its number.
func (l *layout) add(name string, dim, size int, member func(int) int) {
	if size < 2 && dim != dimWorld {
		return
	}

	if name == "" {
		name = fmt.Sprintf("%s-%d", dimNames[dim], len(l.groups))
	}

	g := group{name: name, dim: dim, ranks: make([]int, size), ids: make([]uint32, size)}
	for i := range size {
		r := member(i)
		g.ranks[i], g.ids[i] = r, uint32(r)
		l.at[r].groups[dim] = len(l.groups)
		g.wide = g.wide || l.at[r].host != l.at[g.ranks[0]].host
	}

	l.groups = append(l.groups, g)
}

// everybody is all ranks.
func (l *layout) everybody() []int { return l.groups[len(l.groups)-1].ranks }

// dpName names a data-parallel group by its stage and tensor rank, without what all groups share;
// a single group is dp-stage0.
func (l *layout) dpName(p, t int) string {
	switch s := l.shape; {
	case s.PP > 1 && s.TP > 1:
		return fmt.Sprintf("dp-stage%d-tp%d", p, t)
	case s.TP > 1:
		return fmt.Sprintf("dp-tp%d", t)
	default:
		return fmt.Sprintf("dp-stage%d", p)
	}
}

// find returns the index of a group, -1 where there is none of the name.
func (l *layout) find(name string) int {
	return slices.IndexFunc(l.groups, func(g group) bool { return g.name == name })
}

// wideNames returns the names of the groups that span hosts and are of a kind.
func (l *layout) wideNames(kind func(g *group) bool) []string {
	var out []string
	for i := range l.groups {
		if g := &l.groups[i]; g.wide && kind(g) {
			out = append(out, g.name)
		}
	}

	return out
}

// gradients reports whether a group reduces gradients.
func (g *group) gradients() bool { return g.dim == dimDP }

// topology returns the layout as a topology file: the groups that define roles.
func (l *layout) topology() *topology.File {
	f := &topology.File{WorldSize: l.n, Nodes: map[string][]int{}}
	for r := range l.n {
		name := nodeName(l.at[r].host)
		f.Nodes[name] = append(f.Nodes[name], r)
	}

	for i := range l.groups {
		g := &l.groups[i]
		if g.dim < dimEmbd {
			f.Groups = append(f.Groups, topology.Group{Name: g.name, Dim: dimNames[g.dim], Ranks: g.ranks})
		}
	}

	return f
}
