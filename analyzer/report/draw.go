package report

import (
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// Drawn are the metrics that a picture shows: a frame that is to be drawn must keep them.
var Drawn = []frame.Metric{frame.FP, frame.Self, frame.Backward, frame.DataLoader, frame.Checkpoint, frame.Exposed, frame.Step}

// picture is a frame as it is drawn. Steps are indexes of columns; what a metric is turned into
// is kept by row of the frame, as the metric itself.
type picture struct {
	*frame.Frame
	drawn []rank // in the order they are drawn
}

// rank is who a row of the frame is.
type rank struct {
	number  int
	row     int
	node    string
	stage   int // of the pipeline; -1 unknown
	replica int // -1 unknown
	role    int // number of the set of ranks that it is compared with; -1 unknown
}

// pictureOf draws a frame; nil, and one without a column or a rank, give an empty picture.
func pictureOf(f *frame.Frame) *picture {
	p := &picture{Frame: &frame.Frame{}}
	if f == nil || len(f.Columns) == 0 || len(f.Ranks) == 0 || len(f.Layouts) == 0 {
		return p
	}

	p.Frame = f
	for row := range f.Ranks {
		p.drawn = append(p.drawn, p.rankIn(row))
	}

	slices.SortStableFunc(p.drawn, order)
	return p
}

// rankIn says who a row of the frame is: in the last layout that it is in, for after a restart
// that is where a person would look for it.
func (p *picture) rankIn(row int) rank {
	r := rank{number: p.Ranks[row], row: row, stage: -1, replica: -1, role: -1}
	for _, l := range slices.Backward(p.Layouts) {
		if !l.Present[row] {
			continue
		}

		r.node, r.role, r.replica = l.NodeOf(row), int(l.Role[row]), int(l.Replica[row])
		if r.role >= 0 {
			r.stage = l.Roles[r.role].Stage
		}

		return r
	}

	return r
}

// nodes is the number of nodes of the job.
func (p *picture) nodes() int {
	names := map[string]bool{}
	for _, r := range p.drawn {
		names[r.node] = true
	}

	return len(names)
}

// has reports whether somebody recorded what a measure is drawn of.
func (p *picture) has(m measure) bool { return m.of < frame.MetricCount && p.Has(m.of) }

// unmeasured says in sentences what was not recorded and what is estimated; nothing of a picture without ranks.
func (p *picture) unmeasured() []string {
	if len(p.drawn) == 0 {
		return nil
	}

	var list []string
	say := func(m frame.Metric, text string) {
		if !p.Has(m) {
			list = append(list, text)
		}
	}
	say(frame.FP, "No forward pass was recorded (kind FP): slow computing can only be inferred from own time.")
	say(frame.Comm, "No Communication was recorded: waiting can't be told from own time, and links were not looked at.")
	say(frame.DataLoader, "No data loading was recorded (kind DataLoader).")
	say(frame.Checkpoint, "No checkpoint was recorded (kind SaveCheckpoint).")
	if p.Estimated > 0 {
		list = append(list, fmt.Sprintf("In %s of the rank-steps the exposed communication is an estimate: the end of backward was not recorded.", percent(p.Estimated)))
	}

	if p.HostOnly > 0 {
		list = append(list, fmt.Sprintf("In %s of the rank-steps there is host time only: of work on an accelerator that is the time to enqueue it.", percent(p.HostOnly)))
	}

	for _, n := range p.Notes {
		list = append(list, sentence(capital(plain(n))))
	}

	return list
}
