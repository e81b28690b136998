package report

import (
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Drawn are the metrics that a picture shows: a frame that is to be drawn must keep them.
var Drawn = []frame.Metric{frame.FP, frame.Self, frame.Backward, frame.DataLoader, frame.Checkpoint, frame.Exposed, frame.Step}

// Draw makes the picture of a frame; nil gives an empty one. It shares the frame's
// memory.
func Draw(f *frame.Frame) *Picture {
	p := &Picture{}
	if f == nil || len(f.Columns) == 0 || len(f.Ranks) == 0 || len(f.Layouts) == 0 {
		return p
	}

	for i := range f.Ranks {
		p.Ranks = append(p.Ranks, rankIn(f, i))
	}

	slices.SortStableFunc(p.Ranks, order)
	at, nodes := make([]int, len(p.Ranks)), map[string]bool{} // at: of each row, where it is drawn
	for i, r := range p.Ranks {
		at[r.Row], nodes[r.Node] = i, true
	}

	for _, c := range f.Columns {
		p.Steps = append(p.Steps, c.Step)
	}

	p.Nodes, p.Peers, p.Metrics = len(nodes), peersIn(f, at), map[string][][]float32{}
	for _, m := range Drawn {
		name := m.String()
		if m == frame.Exposed {
			name = wait // as evidence calls it
		}

		if f.Has(m) {
			p.Metrics[name] = f.Values(m)
		}
	}

	p.Unmeasured = unmeasured(f)
	return p
}

// rankIn says who a row of the frame is: in the last layout that it is in, for after a restart
// that is where a person would look for it.
func rankIn(f *frame.Frame, row int) Rank {
	r := Rank{Rank: f.Ranks[row], Row: row, Stage: -1, Replica: -1, Role: -1}
	for _, l := range slices.Backward(f.Layouts) {
		if !l.Present[row] {
			continue
		}

		r.Node, r.Role, r.Replica = l.NodeOf(row), int(l.Role[row]), int(l.Replica[row])
		if r.Role >= 0 {
			r.Stage = l.Roles[r.Role].Stage
		}

		return r
	}

	return r
}

// peersIn returns the ranks of each role in a step, by where they are drawn.
func peersIn(f *frame.Frame, at []int) func(step int) [][]int {
	sets := map[*frame.Layout][][]int{}
	for _, l := range f.Layouts {
		all := make([][]int, 0, len(l.Roles))
		for _, role := range l.Roles {
			set := make([]int, len(role.Rows))
			for i, row := range role.Rows {
				set[i] = at[row]
			}

			all = append(all, set)
		}

		sets[l] = all
	}

	return func(step int) [][]int { return sets[f.Columns[step].Layout] }
}

// unmeasured says in sentences what was not recorded and what is estimated.
func unmeasured(f *frame.Frame) []string {
	var list []string
	say := func(m frame.Metric, text string) {
		if !f.Has(m) {
			list = append(list, text)
		}
	}
	say(frame.FP, "No forward pass was recorded (kind FP): slow computing can only be inferred from own time.")
	say(frame.Comm, "No Communication was recorded: waiting can't be told from own time, and links were not looked at.")
	say(frame.DataLoader, "No data loading was recorded (kind DataLoader).")
	say(frame.Checkpoint, "No checkpoint was recorded (kind SaveCheckpoint).")
	if f.Estimated > 0 {
		list = append(list, fmt.Sprintf("In %s of the rank-steps the exposed communication is an estimate: the end of backward was not recorded.", percent(f.Estimated)))
	}

	if f.HostOnly > 0 {
		list = append(list, fmt.Sprintf("In %s of the rank-steps there is host time only: of work on an accelerator that is the time to enqueue it.", percent(f.HostOnly)))
	}

	for _, n := range f.Notes {
		list = append(list, sentence(capital(plain(n))))
	}

	return list
}
