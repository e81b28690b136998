package frame

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/schemas/topology"
)

// None is the index of "no role", "no replica", "no node".
const None = int32(-1)

// Layout says who is who from one column on: which rank ran on which node, in
// which process, in which role of which replica, and in which groups it
// communicated. Row indices are those of Frame.Ranks. It is read only.
type Layout struct {
	Attempt     int
	World       int   // ranks of the job in this attempt
	Ranks       []int // global rank of each row
	Present     []bool
	Incarnation []uint64 // of each row, 0 = none in this attempt
	// Fresh marks rows whose process start was recorded and is not long before
	// its first step here: its first steps are warm-up.
	Fresh   []bool
	Node    []int32 // index into Nodes
	Nodes   []string
	Role    []int32 // index into Roles
	Roles   []Role
	Replica []int32 // index into Replicas
	// Replicas lists the rows that process the same micro-batches.
	Replicas [][]int32
	// Partial marks replicas some of whose pipeline stages have no rank here.
	Partial []bool
	Groups  []Group
	// From says where the roles come from: "topology", a file or the identities of the
	// processes, or "inferred". It is the same word for the same groups, whichever file or
	// store they stand in.
	From string
	// Certain is false where roles were guessed from times alone.
	Certain bool
	// Stages is the number of pipeline stages, 1 without a pipeline.
	Stages int
}

// Role is a set of ranks that do the same work: only they are compared.
type Role struct {
	Stage int
	Model string // device model where the job has several, else ""
	Rows  []int32
	Size  int // ranks the role has, recorded or not, as far as groups tell
}

// Name is how sentences speak of the role.
func (r *Role) Name(stages int) string {
	var s string
	if stages > 1 {
		s = fmt.Sprintf("stage %d", r.Stage)
	} else {
		s = "the job"
	}

	if r.Model != "" {
		s += " on " + r.Model
	}

	return s
}

// Group is a communication group with at least two recorded ranks.
type Group struct {
	Name string
	Dim  string // tp, pp, dp, cp, ep, "" unknown
	Rows []int32
	// Size is how many ranks the group has, recorded or not.
	Size int
	// Class groups that should be equally fast: same dimension, size, stage.
	Class int
}

// NodeOf is the name of the node on which the row runs, "" when it is not known.
func (l *Layout) NodeOf(row int) string {
	if n := l.Node[row]; n >= 0 {
		return l.Nodes[n]
	}

	return ""
}

// Recorded is how many ranks are present.
func (l *Layout) Recorded() int {
	n := 0
	for _, p := range l.Present {
		if p {
			n++
		}
	}

	return n
}

// Complete reports whether every rank of the group can be seen: only then the
// shortest member's time is the transfer, else the one all wait for may be missing.
func (g *Group) Complete() bool { return len(g.Rows) == g.Size }

// Metric is what its ranks' communication is counted as.
func (g *Group) Metric() Metric { return dimMetric[g.Dim] }

// The dimensions as identities and topology files write them.
var dimMetric = map[string]Metric{"tp": TP, "pp": PP, "dp": DP, "cp": CP, "ep": EP, "": Other}

// Inner are the dimensions whose collectives lie inside the forward pass: all members
// are as slow as the slowest.
var Inner = [3]Metric{TP, CP, EP}

// position is where a rank stands in its groups, and on what device where that counts.
type position struct {
	stage, tp, cp, ep int
	model             string
}

// assign makes roles and replicas out of groups. It reports whether the groups
// say anything about roles.
func (l *Layout) assign(groups []topology.Group, models []string) bool {
	row := l.rows()
	positions := make([]position, len(l.Ranks))
	join := NewSets(len(l.Ranks))
	known, pipelined := false, false
	var dps [][]int32
	for _, g := range groups {
		rows := make([]int32, 0, len(g.Ranks))
		for i, r := range g.Ranks {
			k, ok := row[r]
			if !ok {
				continue
			}

			rows = append(rows, k)
			switch g.Dim {
			case "pp":
				positions[k].stage = i
			case "tp":
				positions[k].tp = i
			case "cp":
				positions[k].cp = i
			case "ep":
				positions[k].ep = i
			}
		}

		switch g.Dim {
		case "pp", "tp", "cp":
			join.Join(rows...)
			known = known || len(g.Ranks) > 1
			if g.Dim == "pp" && len(g.Ranks) > 1 {
				pipelined = true
				l.Stages = max(l.Stages, len(g.Ranks))
			}
		case "dp":
			known = known || len(g.Ranks) > 1
			dps = append(dps, rows)
		}
	}

	if !known {
		return false
	}

	if !pipelined && len(dps) > 1 {
		l.stagesFromDP(dps, positions, join, groups)
	}

	l.setRoles(positions, models)
	l.setReplicas(join)
	l.setSizes(groups, row)
	return true
}

// setSizes tells what the groups know of ranks that have no row.
func (l *Layout) setSizes(groups []topology.Group, row map[int]int32) {
	for _, g := range groups {
		here := 0
		for _, r := range g.Ranks {
			if k, ok := row[r]; ok {
				here++
				// The ranks of a data-parallel group do the same work: it has as many as the role, recorded or not.
				if role := &l.Roles[l.Role[k]]; g.Dim == "dp" && role.Model == "" {
					role.Size = max(role.Size, len(g.Ranks))
				}
			}
		}

		if g.Dim != "pp" || here == len(g.Ranks) {
			continue
		}

		for _, r := range g.Ranks {
			if k, ok := row[r]; ok {
				l.Partial[l.Replica[k]] = true
			}
		}
	}
}

// stagesFromDP serves groups that name the data-parallel groups alone: each is a
// role, ordered by its lowest rank, and the i-th members make a replica.
func (l *Layout) stagesFromDP(dps [][]int32, positions []position, join *Sets, groups []topology.Group) {
	for _, g := range groups {
		if (g.Dim == "tp" || g.Dim == "cp") && len(g.Ranks) > 1 {
			return // several data-parallel groups are what tensor parallelism makes
		}
	}

	size := len(dps[0])
	for _, d := range dps {
		if len(d) != size || size == 0 {
			return
		}
	}

	slices.SortFunc(dps, func(a, b []int32) int { return cmp.Compare(slices.Min(a), slices.Min(b)) })
	for s, d := range dps {
		for i, k := range d {
			positions[k].stage = s
			join.Join(dps[0][i], k)
		}
	}

	l.Stages = len(dps)
}

// minRole is the smallest role that positions inside a stage may split into: below it
// peers are worth more than the finer role.
const minRole = 4

// setRoles groups rows by place. Expert, tensor and context positions split a role
// only where enough peers are left, and so does the device model.
func (l *Layout) setRoles(positions []position, models []string) {
	key := func(k int) position { return positions[k] }
	if l.smallest(key) < minRole {
		key = func(k int) position { p := positions[k]; p.ep = 0; return p }
	}

	if l.smallest(key) < minRole {
		key = func(k int) position { return position{stage: positions[k].stage} }
	}

	if len(models) > 0 {
		coarse := key
		fine := func(k int) position { p := coarse(k); p.model = models[k]; return p }
		if l.smallest(fine) >= minRole {
			key = fine
		}
	}

	index := map[position]int32{}
	l.Role = make([]int32, len(l.Ranks))
	l.Roles = nil
	for k := range l.Ranks {
		l.Role[k] = None
		if !l.Present[k] {
			continue
		}

		id := key(k)
		i, ok := index[id]
		if !ok {
			i = int32(len(l.Roles))
			index[id] = i
			l.Roles = append(l.Roles, Role{Stage: id.stage, Model: id.model})
		}

		l.Role[k] = i
		l.Roles[i].Rows = append(l.Roles[i].Rows, int32(k))
	}

	for i := range l.Roles {
		l.Roles[i].Size = len(l.Roles[i].Rows)
	}
}

// smallest returns the size of the smallest set of present rows with equal keys.
func (l *Layout) smallest(key func(int) position) int {
	count := map[position]int{}
	for k := range l.Ranks {
		if l.Present[k] {
			count[key(k)]++
		}
	}

	least := 0
	for _, n := range count {
		if least == 0 || n < least {
			least = n
		}
	}

	return least
}

// setReplicas numbers the sets of join by their lowest row.
func (l *Layout) setReplicas(join *Sets) {
	l.Replica = make([]int32, len(l.Ranks))
	l.Replicas = nil
	index := map[int32]int32{}
	for k := range l.Ranks {
		l.Replica[k] = None
		if !l.Present[k] {
			continue
		}

		root := join.Find(int32(k))
		i, ok := index[root]
		if !ok {
			i = int32(len(l.Replicas))
			index[root] = i
			l.Replicas = append(l.Replicas, nil)
		}

		l.Replica[k] = i
		l.Replicas[i] = append(l.Replicas[i], int32(k))
	}

	l.Partial = make([]bool, len(l.Replicas))
}

// rows maps a global rank to its row, for present rows.
func (l *Layout) rows() map[int]int32 {
	m := make(map[int]int32, len(l.Ranks))
	for k, r := range l.Ranks {
		if l.Present[k] {
			m[r] = int32(k)
		}
	}

	return m
}

// setGroups keeps the groups with two recorded ranks or more, once each, and
// classes those that should be equally fast.
func (l *Layout) setGroups(groups []topology.Group) {
	row := l.rows()
	type classKey struct {
		dim         string
		size, stage int
		stages      int
	}
	classes := map[classKey]int{}
	seen := map[string]bool{}
	l.Groups = nil
	for _, g := range groups {
		var rows []int32
		for _, r := range g.Ranks {
			if k, ok := row[r]; ok {
				rows = append(rows, k)
			}
		}

		if len(rows) < 2 {
			continue
		}

		// A file and the processes may tell the same group under two names: the first counts.
		id := memberKey(g.Dim, rows)
		if seen[id] {
			continue
		}

		seen[id] = true
		// Groups in the same stages are alike: the sum of the members' stages and the highest tell which.
		key := classKey{dim: g.Dim, size: len(g.Ranks)}
		for _, k := range rows {
			s := l.Roles[l.Role[k]].Stage
			key.stage, key.stages = key.stage+s, max(key.stages, s+1)
		}

		c, ok := classes[key]
		if !ok {
			c = len(classes)
			classes[key] = c
		}

		l.Groups = append(l.Groups, Group{Name: g.Name, Dim: g.Dim, Rows: rows, Size: len(g.Ranks), Class: c})
	}
}
