package residual

import "github.com/laggard-dev/laggard/analyzer/frame"

// NewSharing finds what the stages of a replica share, and what those share that hold the same
// expert of a stage in several groups of experts. What stages share is to be removed first.
func NewSharing(l *frame.Layout) (stages, experts *Sharing) {
	parts, groups := expertParts(l)
	stages, experts = newSharing(l, replicaParts(l), nil), newSharing(l, parts, groups)
	if experts.Usable {
		experts.noise = 1 / float64(max(1, len(parts[0])-1)) // as that of a mean
	}

	if !experts.Usable || !stages.Usable {
		return stages, experts
	}

	experts.stages, stages.experts = stages, experts
	stages.popular = make([]float32, len(parts))
	return stages, experts
}

// replicaParts is the rows of each stage of each replica.
func replicaParts(l *frame.Layout) [][][]int32 {
	out := make([][][]int32, len(l.Replicas))
	for q, rows := range l.Replicas {
		byStage := map[int][]int32{}
		for _, r := range rows {
			g := l.Roles[l.Role[r]].Stage
			byStage[g] = append(byStage[g], r)
		}

		for g := range l.Stages {
			if rows := byStage[g]; len(rows) > 0 {
				out[q] = append(out[q], rows)
			}
		}
	}

	return out
}

// expertParts is the rows that hold the same expert of a stage, by replica, and the groups of
// experts.
func expertParts(l *frame.Layout) (parts [][][]int32, groups [][]int32) {
	type seat struct{ stage, at int }
	var order []seat
	bySeat := map[seat]map[int32][]int32{}
	groups = [][]int32{}
	for i := range l.Groups {
		g := &l.Groups[i]
		if g.Metric() != frame.EP || !g.Complete() {
			continue
		}

		groups = append(groups, g.Rows)
		for at, r := range g.Rows {
			if l.Role[r] < 0 || l.Replica[r] < 0 {
				continue
			}

			k := seat{l.Roles[l.Role[r]].Stage, at}
			if bySeat[k] == nil {
				bySeat[k] = map[int32][]int32{}
				order = append(order, k)
			}

			bySeat[k][l.Replica[r]] = append(bySeat[k][l.Replica[r]], r)
		}
	}

	for _, k := range order {
		var p [][]int32
		for q := range l.Replicas {
			if rows := bySeat[k][int32(q)]; len(rows) > 0 {
				p = append(p, rows)
			}
		}

		parts = append(parts, p)
	}

	return parts, groups
}
