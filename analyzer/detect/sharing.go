package detect

import (
	"math"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// sharing finds and removes what all stages of a replica have in common: they
// process the same micro-batches, so a long sequence makes all of them slow, and
// none of them a straggler.
type sharing struct {
	stage   [][][]int32 // replica → stage → rows
	role    []int32
	roles   int
	usable  bool
	used    bool      // something was removed in the last step
	common  []float32 // per replica: its level relative to the others, NaN unknown
	columns int
	active  bool      // some role shares
	slopes  []float32 // per role, of the last look

	sxy, sww, sxx []float64 // per role, exponential sums
	terms         []float64 // how many terms are in them
	orphan        []float32 // per rank: noise left in it because none of its mates was there, 0 for others
	mean, wmean   []float32 // per rank: centres of x and w
	seen          []uint8
	dev, w, whole []float32
	ref           *reference // of replicas
	stages        []float32
	buf           []float32
}

func newSharing(l *frame.Layout) *sharing {
	n := len(l.Ranks)
	s := &sharing{
		role: l.Role, roles: len(l.Roles), common: make([]float32, len(l.Replicas)),
		sxy: make([]float64, len(l.Roles)), sww: make([]float64, len(l.Roles)), sxx: make([]float64, len(l.Roles)),
		terms: make([]float64, len(l.Roles)), orphan: make([]float32, n),
		slopes: make([]float32, len(l.Roles)), mean: make([]float32, n), wmean: make([]float32, n), seen: make([]uint8, n), w: make([]float32, n),
		dev: make([]float32, n), whole: make([]float32, len(l.Replicas)),
		ref: newReference([][]int32{sequence(len(l.Replicas))}, []int{len(l.Replicas)}),
	}
	s.stage = make([][][]int32, len(l.Replicas))
	for q, rows := range l.Replicas {
		byStage := map[int][]int32{}
		for _, r := range rows {
			g := l.Roles[l.Role[r]].Stage
			byStage[g] = append(byStage[g], r)
		}
		for g := range l.Stages {
			if rows := byStage[g]; len(rows) > 0 {
				s.stage[q] = append(s.stage[q], rows)
			}
		}
		s.usable = s.usable || len(s.stage[q]) > 1
	}
	s.usable = s.usable && len(l.Replicas) > 1
	return s
}

// remove takes out of the absolute logs what the other stages of the replica show as
// well, where the history says that they do so step by step, and reports whether there
// was anything. It is done before ranks are compared: where members of a role are
// missing, the middle of its peers is of other replicas than that of the next stage.
// level is the usual log of each role, now its middle in this step; who waited for a
// mate in this step teaches nothing.
func (s *sharing) remove(logs []float32, level []float64, now []float32, waited []bool, t *track) bool {
	s.used = false
	if !s.usable {
		for q := range s.common {
			s.common[q] = nan32
		}
		return false
	}
	if s.columns++; s.columns > window && !s.active && s.columns%sharedProbe != 0 {
		return false
	}
	s.deviate(logs, level, now)
	s.excuse(t)
	s.others()
	s.learn(waited, t)
	s.active = false
	for g := range s.slopes {
		s.slopes[g] = float32(s.slope(g))
		s.active = s.active || s.slopes[g] > 0
	}
	if s.columns < sharedColumns {
		return false
	}
	for r, w := range s.w {
		g := s.role[r]
		s.orphan[r] = 0
		if g < 0 || s.slopes[g] == 0 {
			continue
		}
		if w != w {
			s.orphan[r] = s.slopes[g] * float32(math.Sqrt(s.sww[g]/s.terms[g]))
			continue
		}
		logs[r] -= s.slopes[g] * w
		s.used = true
	}
	return s.used
}

// deviate sets dev[r] to how far rank r is from what is usual in its role, less what
// all roles have in common in this step.
func (s *sharing) deviate(logs []float32, level []float64, now []float32) {
	s.buf = s.buf[:0]
	for g, m := range now {
		if m == m {
			s.buf = append(s.buf, m-float32(level[g]))
		}
	}
	common := median(s.buf)
	for r, x := range logs {
		g := s.role[r]
		switch {
		case g < 0 || x != x:
			s.dev[r] = nan32
		default:
			s.dev[r] = x - float32(level[g]) - common
		}
	}
}

// excuse takes out of the work of slow ranks what they lately were slow by. Where two
// stages of a replica are slow, each by what the other is thought to work, neither tells
// the work.
func (s *sharing) excuse(t *track) {
	for _, stages := range s.stage {
		slow := 0
		for _, rows := range stages {
			if slices.ContainsFunc(rows, func(r int32) bool { return t.phase[r] != ok }) {
				slow++
			}
		}
		if slow == 0 {
			continue
		}
		for _, rows := range stages {
			for _, r := range rows {
				switch {
				case t.phase[r] == ok:
				case slow > 1:
					s.dev[r] = nan32
				default:
					s.dev[r] -= t.lately(int(r))
				}
			}
		}
	}
}

// others sets w[r] to the median over the other stages of r's replica, and the common
// part of each replica to how far it is from the other replicas. Of two ranks of a stage
// the faster one tells the work: slowness only adds.
func (s *sharing) others() {
	for i := range s.w {
		s.w[i] = nan32
	}
	for q, stages := range s.stage {
		s.stages = s.stages[:0]
		for _, rows := range stages {
			s.buf = s.buf[:0]
			for _, r := range rows {
				if v := s.dev[r]; v == v {
					s.buf = append(s.buf, v)
				}
			}
			s.stages = append(s.stages, lowerMedian(s.buf))
		}
		s.buf = compact(s.buf[:0], s.stages)
		s.whole[q] = median(s.buf)
		for i, rows := range stages {
			s.buf = s.buf[:0]
			for j, v := range s.stages {
				if j != i && v == v {
					s.buf = append(s.buf, v)
				}
			}
			w := median(s.buf)
			for _, r := range rows {
				s.w[r] = w
			}
		}
	}
	s.ref.relative(s.whole, s.common)
}

// learn follows how a rank goes with the other stages in each role, about each rank's
// own centre, so that a rank that is always slow teaches nothing.
func (s *sharing) learn(waited []bool, t *track) {
	keep := 1 - 1.0/memory
	for g := range s.sxy {
		s.sxy[g] *= keep
		s.sww[g] *= keep
		s.sxx[g] *= keep
		s.terms[g] *= keep
	}
	for r, x := range s.dev {
		g := s.role[r]
		if g < 0 || x != x || s.w[r] != s.w[r] || t.phase[r] != ok || waited != nil && waited[r] {
			continue
		}
		k := s.seen[r]
		if k == 0 {
			s.mean[r], s.wmean[r] = 0, 0
		}
		dx, dw := clip(x-s.mean[r], -0.5, 0.5), clip(s.w[r]-s.wmean[r], -0.5, 0.5)
		if k < 200 {
			s.seen[r]++
		}
		a := 1 / float32(k+2)
		s.mean[r] += a * dx
		s.wmean[r] += a * dw
		s.sxy[g] += float64(dx * dw)
		s.sww[g] += float64(dw * dw)
		s.sxx[g] += float64(dx * dx)
		s.terms[g]++
	}
}

// slope is what to take of w in role g: 0 while they don't go together. Both are
// measured with noise, so least squares would fall short: Deming's line takes the noise
// of w, a median of other stages, to be sharedNoise of that of a rank (Deming,
// Statistical Adjustment of Data, 1943). A stage of a real job follows 1.52 times.
func (s *sharing) slope(g int) float64 {
	if s.sww[g] <= 0 || s.sxx[g] <= 0 {
		return 0
	}
	if s.sxy[g]/math.Sqrt(s.sww[g]*s.sxx[g]) < sharedCorrelation {
		return 0
	}
	d := s.sxx[g] - s.sww[g]/sharedNoise
	slope := (d + math.Sqrt(d*d+4*s.sxy[g]*s.sxy[g]/sharedNoise)) / (2 * s.sxy[g])
	return min(slope, sharedMost)
}
