package detect

import (
	"slices"

	"github.com/laggard-dev/laggard/analyzer/detect/history"
	"github.com/laggard-dev/laggard/analyzer/detect/level"
	"github.com/laggard-dev/laggard/analyzer/detect/link"
	"github.com/laggard-dev/laggard/analyzer/detect/residual"
	"github.com/laggard-dev/laggard/analyzer/detect/saves"
	"github.com/laggard-dev/laggard/analyzer/detect/sequential"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/replay"
)

// setLayout makes everything that depends on who is who. A rank whose process,
// node or role changed begins anew; a node's suspicion waits for it in carried.
func (e *Engine) setLayout(l *frame.Layout) {
	old := e.layout
	if old != nil {
		e.carry(l)
	}

	e.layout, e.n, e.graph = l, len(l.Ranks), replay.New(l)
	e.worldSize = max(e.worldSize, l.World)
	e.inGroup = [frame.MetricCount][]int32{}
	roles, sizes, stage := make([][]int32, len(l.Roles)), make([]int, len(l.Roles)), make([]int32, len(l.Roles))
	for g := range l.Roles {
		roles[g], sizes[g], stage[g] = l.Roles[g].Rows, l.Roles[g].Size, int32(l.Roles[g].Stage)
	}

	units := func(s signal) sequential.Units {
		return sequential.Units{Roles: roles, Sizes: sizes, Together: int(signals) * e.n, Node: l.Node, Stage: stage, Habits: s == own,
			Pure: l.Stages == 1 && len(l.Replicas) > 0 && len(l.Roles) == 1 && len(l.Replicas) == len(l.Roles[0].Rows)}
	}

	same := old != nil && len(old.Ranks) == len(l.Ranks) && old.World == l.World && sameRoles(old, l)
	for s := range signals {
		e.ref[s] = residual.NewReference(l)
		if e.v[s] == nil || len(e.v[s]) != e.n {
			e.v[s] = make([]float32, e.n)
		}

		if !same {
			e.tracks[s] = sequential.New(&e.cfg, e.n, units(s))
			e.sharing[s], e.experts[s] = residual.NewSharing(l)
			continue
		}

		e.tracks[s].Assign(units(s))
	}

	e.findHomes()
	if same {
		e.saver.Assign(l)
	} else {
		e.reset(l)
	}

	e.costs.Assign(l, e.graph, e.recent, e.tracks, e.backward, e.exposure)
	fresh := func(r int32) bool { return l.Fresh[r] && (!same || old.Incarnation[r] != l.Incarnation[r]) }
	moved := func(r int32) bool { return same && old.NodeOf(int(r)) != e.nodeOf(int(r)) }
	for _, t := range e.wholes {
		begin(t, l.Replicas, moved, fresh)
	}

	for _, t := range e.alone {
		begin(t, roles, moved, fresh)
	}

	for g, rows := range roles {
		if slices.ContainsFunc(rows, moved) {
			e.level.Move(g)
		}
	}

	for r := range e.n {
		for s := range signals {
			if same && old.Incarnation[r] != l.Incarnation[r] {
				e.tracks[s].Forget(r)
			}

			if fresh(int32(r)) {
				e.tracks[s].Start(r)
			}
		}
	}
}

// begin moves those units of a test, lists of rows, of which a rank is on another node than in the layout before; and
// tells which have a rank whose process begins.
func begin(t *sequential.Test, units [][]int32, moved, fresh func(r int32) bool) {
	for u, rows := range units {
		if slices.ContainsFunc(rows, moved) {
			t.Move(u)
		}

		if slices.ContainsFunc(rows, fresh) {
			t.Start(u)
		}
	}
}

// reset forgets what a new world or parallel layout makes meaningless.
func (e *Engine) reset(l *frame.Layout) {
	e.base = l
	for s := range e.wholes {
		e.wholes[s] = sequential.New(&e.cfg, len(l.Replicas), sequential.Alike(len(l.Replicas)))
	}

	alone := sequential.Alike(len(l.Roles))
	alone.SelfOnly, alone.Habits, alone.Together = true, true, int(signals)*len(l.Roles)
	for s := range e.alone {
		e.alone[s] = sequential.New(&e.cfg, len(l.Roles), alone)
	}

	e.aloneV = make([]float32, len(l.Roles))
	e.tokens = residual.NewCovariate(l, int(signals))
	e.inner = residual.NewWaits(l)
	e.backward = residual.NewBackward(l)
	e.exposure = residual.NewExposure(l)
	e.saver = saves.New(l)
	e.links = link.New(&e.cfg, l)
	e.level = level.New(l)
	e.storage = level.NewLoading()
	e.recent = history.New(e.n)
	e.costs.Forget()
	e.judged = make([]uint16, e.n)
	for s := range e.leads {
		e.leads[s] = make([]bool, e.n)
	}

	e.stepMedian = 0
}

// sameRoles reports whether both layouts have every rank in the same role and replica.
func sameRoles(a, b *frame.Layout) bool {
	return len(a.Roles) == len(b.Roles) && slices.Equal(a.Role, b.Role) && slices.Equal(a.Replica, b.Replica)
}
