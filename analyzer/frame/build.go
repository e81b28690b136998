package frame

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// ErrEmpty is returned by Build when no step of any rank was given.
var ErrEmpty = errors.New("no steps were recorded")

// Limits of a frame: a job beyond them is cut, with a note, never refused.
const (
	maxRows = 1 << 20
	// maxCells bounds one matrix: 10,000 ranks × 25,000 steps, 1 GB.
	maxCells = 250_000_000
	// sparseCells bounds a matrix against what was really recorded, so that a few
	// rows with wild step numbers can't ask for memory.
	sparseCells = 64
)

// cellKey is (step, repeat, run) of a column within an attempt; run counts how
// often the job went back to an earlier step before.
type cellKey struct {
	step int64
	rep  int32
}

// Build makes the frame. topo is what is known of nodes and groups beside the
// rows, nil where that is nothing. The Builder gives its memory to the frame and
// is empty afterwards. ErrEmpty is returned when no step was given, and recording was not
// off.
func (b *Builder) Build(topo *topology.File) (*Frame, error) {
	f := &Frame{Job: b.job, Off: b.off()}
	if b.rows == 0 {
		if f.Off == nil {
			return nil, ErrEmpty
		}
		return f, nil
	}
	f.Estimated = float64(b.estimated) / float64(b.rows)
	f.HostOnly = float64(b.hostOnly) / float64(b.rows)
	b.note(f)
	f.Overlap = b.overlap()
	for _, r := range b.ranks {
		for _, i := range r.incs {
			i.sort()
			f.WorldSize = max(f.WorldSize, int(min(i.meta.WorldSize, maxRows)))
		}
	}
	if topo != nil {
		f.WorldSize = max(f.WorldSize, topo.WorldSize)
	}
	rowOf := b.setRanks(f, topo)
	tries := b.attempts()
	f.Attempts = len(tries)
	spans := make([]span, len(tries))
	for k, a := range tries {
		spans[k] = a.columns(len(b.ranks))
		for _, c := range spans[k].keys {
			f.Columns = append(f.Columns, Key{Attempt: k, Step: c.step, Repeat: int(c.rep), Ranks: spans[k].count[c]})
		}
	}
	b.bound(f, spans)
	from0 := 0
	for k, a := range tries {
		spans[k].from = from0
		from0 += len(spans[k].keys)
		a.fill(f, &spans[k], rowOf)
	}
	w := &world{b: b, f: f, topo: topo, rowOf: rowOf}
	for k, a := range tries {
		w.layouts(k, a, &spans[k])
	}
	f.Transfers = b.comms.build(f, tries, rowOf)
	w.infer()
	*b = Builder{}
	return f, nil
}

// off returns when recording was off.
func (b *Builder) off() []Off {
	var ranks []*row.Rank
	for _, r := range b.ranks {
		for _, i := range r.incs {
			ranks = append(ranks, &i.meta)
		}
	}
	return OffTimes(ranks)
}

func (b *Builder) note(f *Frame) {
	if b.open > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("%d steps never ended (their process is gone) and were left out", b.open))
	}
	if b.switched > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("in %d rank-steps the switch changed: their communication was left out", b.switched))
	}
}

// setRanks makes one row for each rank that was recorded or is expected.
func (b *Builder) setRanks(f *Frame, topo *topology.File) []int32 {
	seen := map[int]bool{}
	for _, r := range b.ranks {
		for _, i := range r.incs {
			if len(i.steps) > 0 {
				seen[int(r.rank)] = true
			}
		}
	}
	if topo != nil {
		for _, ranks := range topo.Nodes {
			for _, r := range ranks {
				if r >= 0 && len(seen) < maxRows {
					seen[r] = true
				}
			}
		}
	}
	for r := range seen {
		f.Ranks = append(f.Ranks, r)
	}
	slices.Sort(f.Ranks)
	rowOf := make([]int32, len(b.ranks))
	for s, r := range b.ranks {
		k, ok := slices.BinarySearch(f.Ranks, int(r.rank))
		rowOf[s] = int32(k)
		if !ok {
			rowOf[s] = None // an identity without a single step
		}
	}
	return rowOf
}

// span is an attempt's columns.
type span struct {
	keys  []cellKey // in the order the job ran them
	index map[cellKey]int32
	count map[cellKey]int
	top   map[int64]int32 // highest repeat of a step among the first processes
	from  int             // first column in the frame
	plain bool            // nothing repeats: keys are sorted by step
}

// columns collects the steps of an attempt. Most ranks have the very same list,
// so a list that equals the last one is only counted.
func (a *attempt) columns(slots int) span {
	s := span{index: map[cellKey]int32{}, count: map[cellKey]int{}, top: map[int64]int32{}, plain: true}
	var ref *incarnation
	same := 0
	add := func(i *incarnation, n int, shift bool) {
		for k := range i.len() {
			s.count[s.key(i, i.at(k), shift)] += n
		}
	}
	flush := func() {
		if ref != nil {
			add(ref, same, false)
		}
	}
	for slot := range slots {
		i := a.first[slot]
		if i == nil || len(i.steps) == 0 {
			continue
		}
		if i.reps != nil {
			s.plain = false
			for k, st := range i.steps {
				s.top[st] = max(s.top[st], int32(i.reps[k]))
			}
		}
		if ref != nil && i.order == nil && ref.order == nil && i.reps == nil && ref.reps == nil && slices.Equal(i.steps, ref.steps) {
			same++
			continue
		}
		flush()
		ref, same = i, 1
	}
	flush()
	for _, list := range a.later {
		for _, i := range list {
			if i.reps != nil {
				s.plain = false
			}
			add(i, 1, true)
		}
	}
	for k := range s.count {
		s.keys = append(s.keys, k)
	}
	s.sort(a)
	return s
}

// key is the column of the k-th row of i. A process that joined later takes part
// in the newest returns of a step.
func (s *span) key(i *incarnation, k int, later bool) cellKey {
	c := cellKey{step: i.steps[k], rep: int32(i.rep(k))}
	if later {
		c.rep += max(0, s.top[c.step]-i.lastRepeat(c.step))
	}
	return c
}

// lastRepeat is the highest repeat of a step within the process.
func (i *incarnation) lastRepeat(step int64) int32 {
	if i.reps == nil {
		return 0
	}
	if i.tops == nil {
		i.tops = make(map[int64]int32, len(i.steps))
		for j, st := range i.steps {
			i.tops[st] = max(i.tops[st], int32(i.reps[j]))
		}
	}
	return i.tops[step]
}

// sort puts the columns into the order the job ran them: by how often it had
// gone back before, then by step.
func (s *span) sort(a *attempt) {
	run := map[cellKey]int{}
	if !s.plain {
		for _, i := range a.first {
			if i.reps != nil {
				i.runs(run)
			}
		}
	}
	slices.SortFunc(s.keys, func(x, y cellKey) int {
		if c := cmp.Compare(run[x], run[y]); c != 0 {
			return c
		}
		if c := cmp.Compare(x.step, y.step); c != 0 {
			return c
		}
		return cmp.Compare(x.rep, y.rep)
	})
	for n, k := range s.keys {
		s.index[k] = int32(n)
	}
}

// runs raises the run of each column that this process took part in.
func (i *incarnation) runs(run map[cellKey]int) {
	order := make([]int32, len(i.steps))
	for k := range order {
		order[k] = int32(k)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(i.starts[a], i.starts[b]) })
	n, last := 0, int64(math.MinInt64)
	for _, k := range order {
		if i.steps[k] <= last {
			n++
		}
		last = i.steps[k]
		c := cellKey{step: i.steps[k], rep: int32(i.rep(int(k)))}
		run[c] = max(run[c], n)
	}
}

// bound drops the columns that the fewest ranks recorded until the matrices fit.
func (b *Builder) bound(f *Frame, spans []span) {
	limit := min(maxCells, sparseCells*b.rows+1<<20)
	most := max(1, limit/len(f.Ranks))
	if len(f.Columns) <= most {
		return
	}
	counts := make([]int, len(f.Columns))
	for k, c := range f.Columns {
		counts[k] = c.Ranks
	}
	slices.Sort(counts)
	least := counts[len(counts)-most]
	room := 0
	for _, c := range counts[len(counts)-most:] {
		if c == least {
			room++
		}
	}
	dropped := len(f.Columns) - most
	f.Columns = f.Columns[:0]
	for k := range spans {
		s := &spans[k]
		s.keys = slices.DeleteFunc(s.keys, func(c cellKey) bool {
			if n := s.count[c]; n == least && room > 0 {
				room--
				return false
			} else {
				return n <= least
			}
		})
		s.index = map[cellKey]int32{}
		for n, c := range s.keys {
			s.index[c] = int32(n)
			f.Columns = append(f.Columns, Key{Attempt: k, Step: c.step, Repeat: int(c.rep), Ranks: s.count[c]})
		}
	}
	f.Notes = append(f.Notes, fmt.Sprintf("%d steps that few ranks recorded were left out to bound memory", dropped))
}

// fill moves the rows of an attempt into the frame's matrices and frees them. Of
// two processes with the same cell (two pods of one rank for a while) the one
// that began later counts.
func (a *attempt) fill(f *Frame, s *span, rowOf []int32) {
	for slot, k := range rowOf {
		if k == None {
			continue
		}
		all := a.all(slot)
		for n, i := range all {
			if len(i.steps) > 0 {
				f.move(i, s, int(k), n > 0, n == 0 && len(all) == 1)
			}
		}
	}
	for n := range s.keys {
		c := &f.Columns[s.from+n]
		tries := 0
		for slot := 0; slot < len(rowOf) && tries < 8; slot++ {
			if i := a.first[slot]; i != nil && len(i.starts) > 0 {
				tries++
				if k, ok := sort.Find(i.len(), func(k int) int { return cmp.Compare(c.Step, i.steps[i.at(k)]) }); ok {
					p := i.at(k)
					if c.StartNs == 0 {
						c.StartNs = i.starts[p]
					}
					c.Passes = max(c.Passes, int(i.passes[p]))
				}
			}
		}
	}
}

// move copies one process's values into its rank's row. A process that is the
// only one of its rank and has every column gives its slices away instead.
func (f *Frame) move(i *incarnation, s *span, row int, later, alone bool) {
	cols := make([]int32, i.len())
	whole := alone && i.order == nil && len(cols) == len(f.Columns)
	next := 0
	for k := range cols {
		key := s.key(i, i.at(k), later)
		n, ok := int32(next), next < len(s.keys) && s.keys[next] == key // the usual next one
		if !ok {
			n, ok = s.index[key]
		}
		if ok {
			next = int(n) + 1
		}
		cols[k] = None
		if ok {
			cols[k] = n + int32(s.from)
		}
		whole = whole && cols[k] == int32(k)
	}
	for m := range i.vals {
		src := i.vals[m]
		if src == nil {
			f.clear(Metric(m), row, cols)
			continue
		}
		if f.values[m] == nil {
			f.values[m] = make([][]float32, len(f.Ranks))
		}
		if whole {
			f.values[m][row], i.vals[m] = src, nil
			continue
		}
		dst := f.values[m][row]
		if dst == nil {
			dst = make([]float32, len(f.Columns))
			for k := range dst {
				dst[k] = NaN
			}
			f.values[m][row] = dst
		}
		for k, c := range cols {
			if c != None {
				dst[c] = src[i.at(k)]
			}
		}
		i.vals[m] = nil
	}
}

// clear empties a rank's cells of a metric that the process never measured: a step that
// it repeats is not its predecessor's.
func (f *Frame) clear(m Metric, row int, cols []int32) {
	if f.values[m] == nil || f.values[m][row] == nil {
		return
	}
	for _, c := range cols {
		if c != None {
			f.values[m][row][c] = NaN
		}
	}
}
