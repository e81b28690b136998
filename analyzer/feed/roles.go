package feed

import (
	"cmp"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// position is where a rank stands in its groups, and on what device where that counts.
type position struct {
	stage, tp, cp, ep int
	model             string
}

// assign makes roles and replicas out of groups, beside those that ranks were seen to talk in. It reports whether the groups
// say anything about roles.
func assign(l *frame.Layout, groups, seen []topology.Group, models []string) bool {
	positions := make([]position, len(l.Ranks))
	join := frame.NewSets(len(l.Ranks))
	known, pipelined := false, false
	var dps [][]int32
	for _, g := range groups {
		for i, rank := range g.Ranks {
			k := rowOf(l.Ranks, rank)
			if k < 0 || !l.Present[k] {
				continue
			}

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

		rows := presentOf(l, g.Ranks)
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
		stagesFromDP(l, dps, positions, join, groups, seen)
	}

	setRoles(l, positions, models)
	setReplicas(l, join)
	setSizes(l, groups)
	return true
}

// setSizes tells what the groups know of ranks that have no row.
func setSizes(l *frame.Layout, groups []topology.Group) {
	for _, g := range groups {
		here := presentOf(l, g.Ranks)
		for _, k := range here {
			// The ranks of a data-parallel group do the same work: it has as many as the role, recorded or not.
			if role := &l.Roles[l.Role[k]]; g.Dim == "dp" && role.Model == "" {
				role.Size = max(role.Size, len(g.Ranks))
			}

			l.Partial[l.Replica[k]] = l.Partial[l.Replica[k]] || g.Dim == "pp" && len(here) < len(g.Ranks)
		}
	}
}

// stagesFromDP serves groups that name the data-parallel groups alone: each is a
// role, ordered by its lowest rank, and the i-th members make a replica. Where members of several of them
// were seen in collectives, and nobody sends, there is no pipeline.
func stagesFromDP(l *frame.Layout, dps [][]int32, positions []position, join *frame.Sets, groups, seen []topology.Group) {
	for _, g := range seen {
		if rows := presentOf(l, g.Ranks); !slices.ContainsFunc(dps, func(d []int32) bool { return containsAll(d, rows) }) {
			return
		}
	}

	if slices.ContainsFunc(groups, func(g topology.Group) bool { return (g.Dim == "tp" || g.Dim == "cp") && len(g.Ranks) > 1 }) {
		return // several data-parallel groups are what tensor parallelism makes
	}

	size := len(dps[0])
	if size == 0 || slices.ContainsFunc(dps, func(d []int32) bool { return len(d) != size }) {
		return
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

// containsAll reports whether all of some rows are in v.
func containsAll(v, rows []int32) bool {
	return !slices.ContainsFunc(rows, func(r int32) bool { return !slices.Contains(v, r) })
}

// minRole is the smallest role that positions inside a stage may split into: below it
// peers are worth more than the finer role.
const minRole = 4

// setRoles groups rows by place. Expert, tensor and context positions split a role
// only where enough peers are left, and so does the device model.
func setRoles(l *frame.Layout, positions []position, models []string) {
	key := func(k int) position { return positions[k] }
	if smallest(l, key) < minRole {
		key = func(k int) position { p := positions[k]; p.ep = 0; return p }
	}

	if smallest(l, key) < minRole {
		key = func(k int) position { return position{stage: positions[k].stage} }
	}

	if len(models) > 0 {
		coarse := key
		fine := func(k int) position { p := coarse(k); p.model = models[k]; return p }
		if smallest(l, fine) >= minRole {
			key = fine
		}
	}

	index := map[position]int32{}
	l.Role = make([]int32, len(l.Ranks))
	l.Roles = nil
	for k := range l.Ranks {
		l.Role[k] = frame.None
		if !l.Present[k] {
			continue
		}

		id := key(k)
		i, ok := index[id]
		if !ok {
			i = int32(len(l.Roles))
			index[id] = i
			l.Roles = append(l.Roles, frame.Role{Stage: id.stage, Model: id.model})
		}

		l.Role[k] = i
		l.Roles[i].Rows = append(l.Roles[i].Rows, int32(k))
	}

	for i := range l.Roles {
		l.Roles[i].Size = len(l.Roles[i].Rows)
	}
}

// smallest returns the size of the smallest set of present rows with equal keys.
func smallest(l *frame.Layout, key func(int) position) int {
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
func setReplicas(l *frame.Layout, join *frame.Sets) {
	l.Replica = make([]int32, len(l.Ranks))
	l.Replicas = nil
	index := map[int32]int32{}
	for k := range l.Ranks {
		l.Replica[k] = frame.None
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

// rowOf is the row of a rank, -1 where it has none; all are the ranks of the rows, ascending.
func rowOf(all []int, rank int) int {
	if k, ok := slices.BinarySearch(all, rank); ok {
		return k
	}

	return -1
}

// rowsOf are the rows of those of some ranks that have one.
func rowsOf(all, some []int) (rows []int32) {
	for _, rank := range some {
		if k := rowOf(all, rank); k >= 0 {
			rows = append(rows, int32(k))
		}
	}

	return rows
}

// presentOf are the rows of those of some ranks that are present.
func presentOf(l *frame.Layout, some []int) []int32 {
	return slices.DeleteFunc(rowsOf(l.Ranks, some), func(k int32) bool { return !l.Present[k] })
}

// setGroups keeps the groups with two recorded ranks or more, once each, and
// classes those that should be equally fast.
func setGroups(l *frame.Layout, groups []topology.Group) {
	type classKey struct {
		dim         string
		size, stage int
		stages      int
	}
	classes := map[classKey]int{}
	seen := map[string]bool{}
	l.Groups = nil
	for _, g := range groups {
		rows := presentOf(l, g.Ranks)
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

		l.Groups = append(l.Groups, frame.Group{Name: g.Name, Dim: g.Dim, Rows: rows, Size: len(g.Ranks), Class: c})
	}
}
