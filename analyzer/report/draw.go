package report

import (
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Drawn are the metrics that a picture shows.
var Drawn = []frame.Metric{frame.FP, frame.Self, frame.Backward, frame.DataLoader, frame.Checkpoint, frame.Exposed, frame.Step}

// Draw makes the picture of a frame; nil gives an empty one. It shares the frame's
// memory.
func Draw(f *frame.Frame) *Picture {
	p := &Picture{}
	if f == nil || len(f.Columns) == 0 || len(f.Ranks) == 0 || len(f.Layouts) == 0 {
		return p
	}

	last := f.Layouts[f.Columns[len(f.Columns)-1].Layout]
	rows := drawnRows(f)
	for _, i := range rows {
		p.Ranks = append(p.Ranks, rankIn(f, last, i))
	}

	slices.SortStableFunc(rows, func(a, b int) int { return order(rankIn(f, last, a), rankIn(f, last, b)) })
	slices.SortStableFunc(p.Ranks, order)
	for _, c := range f.Columns {
		p.Steps = append(p.Steps, c.Step)
	}

	p.Nodes = nodesIn(p.Ranks)
	d := drawing{f: f, p: p, rows: rows, at: make([]int, len(f.Ranks))}
	for i := range d.at {
		d.at[i] = -1
	}

	for i, r := range rows {
		d.at[r] = i
	}

	p.Peers = d.peers()
	for _, m := range Drawn {
		if f.Has(m) {
			p.Metrics = append(p.Metrics, Metric{Name: metricKey(m), Rows: d.metric(m)})
		}
	}

	p.Unmeasured = unmeasured(f)
	return p
}

// drawnRows are the frame's rows that recorded a step at all, or are expected to.
func drawnRows(f *frame.Frame) []int {
	rows := make([]int, len(f.Ranks))
	for i := range rows {
		rows[i] = i
	}

	return rows
}

// rankIn says who a row of the frame is in a layout.
func rankIn(f *frame.Frame, l *frame.Layout, row int) Rank {
	r := Rank{Rank: f.Ranks[row], Stage: -1, Replica: -1, Role: -1}
	// A rank that is not in the last layout is shown as it was when last seen.
	for k := len(f.Layouts) - 1; !placed(l, row) && k >= 0; k-- {
		l = f.Layouts[k]
	}

	if row < len(l.Node) && l.Node[row] != frame.None {
		r.Node = l.Nodes[l.Node[row]]
	}

	if row < len(l.Role) && l.Role[row] != frame.None {
		r.Role = int(l.Role[row])
		r.Stage = l.Roles[r.Role].Stage
	}

	if row < len(l.Replica) && l.Replica[row] != frame.None {
		r.Replica = int(l.Replica[row])
	}

	return r
}

func placed(l *frame.Layout, row int) bool {
	return row < len(l.Present) && l.Present[row]
}

func nodesIn(ranks []Rank) int {
	names := map[string]bool{}
	for _, r := range ranks {
		names[r.Node] = true
	}

	return len(names)
}

// drawing is a picture in the making.
type drawing struct {
	f    *frame.Frame
	p    *Picture
	rows []int // frame's row of each drawn rank
	at   []int // drawn rank of each of the frame's rows
}

// metric returns the rows of one metric in drawing order; they are the frame's own.
func (d *drawing) metric(m frame.Metric) [][]float32 {
	out := make([][]float32, len(d.rows))
	for i, r := range d.rows {
		out[i] = d.f.Row(m, r)
	}

	return out
}

// peers returns the ranks of each role in a step.
func (d *drawing) peers() func(step int) [][]int {
	sets := make([][][]int, len(d.f.Layouts))
	for k, l := range d.f.Layouts {
		for _, role := range l.Roles {
			var set []int
			for _, row := range role.Rows {
				if at := d.at[row]; at >= 0 {
					set = append(set, at)
				}
			}

			if len(set) > 0 {
				sets[k] = append(sets[k], set)
			}
		}
	}

	return func(step int) [][]int { return sets[d.f.Columns[step].Layout] }
}

// metricKey is the name of a metric in evidence.
func metricKey(m frame.Metric) string {
	if m == frame.Exposed {
		return wait
	}

	return m.String()
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
