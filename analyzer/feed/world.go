package feed

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/topology"
)

// world makes the layouts of a job out of its processes.
type world struct {
	size     int      // the largest world seen; 0 unknown
	ranks    []int    // global rank of each row, ascending
	attempts int      // launches of the job
	notes    []string // sentences for a person

	topo   *topology.File
	all    []*process
	of     [][]*process        // each launch
	heard  map[uint32]*process // of each rank, the process that was heard of first
	seen   [frame.MetricCount]bool
	talks  bool           // communicators are known
	nodeOf map[int]string // of the topology file
	shared bool           // the topology and the processes use the same node names
}

// newWorld takes all processes, those of one rank in the order in which they were heard
// of. seen says what any of them measured; topo is what is known of nodes and groups
// beside them, nil where that is nothing.
func newWorld(all []*process, seen [frame.MetricCount]bool, topo *topology.File) *world {
	w := &world{topo: topo, all: all, heard: make(map[uint32]*process, len(all)), seen: seen, nodeOf: map[int]string{}}
	rows := map[int]bool{}
	for _, p := range all {
		if w.heard[p.Rank] == nil {
			w.heard[p.Rank] = p
		}

		if p.Steps > 0 {
			rows[int(p.Rank)] = true
		}

		w.talks = w.talks || len(p.Talks) > 0
		w.size = max(w.size, int(min(p.Meta.WorldSize, frame.MaxRows)))
	}

	if topo != nil {
		w.size = max(w.size, topo.WorldSize)
		w.readNodes(rows)
	}

	w.ranks = slices.Sorted(maps.Keys(rows))
	w.attempts = launches(all)
	w.of = make([][]*process, w.attempts)
	for _, p := range all {
		w.of[p.Attempt] = append(w.of[p.Attempt], p)
	}

	return w
}

// readNodes takes the ranks and the node names of the topology file.
func (w *world) readNodes(rows map[int]bool) {
	for name, ranks := range w.topo.Nodes {
		for _, r := range ranks {
			if r >= 0 && len(rows) < frame.MaxRows {
				rows[r] = true
			}

			if old, ok := w.nodeOf[r]; !ok || name < old {
				w.nodeOf[r] = name
			}
		}
	}

	for _, p := range w.all {
		if _, ok := w.topo.Nodes[p.nodeName()]; ok {
			w.shared = true
		}
	}
}

// current returns the processes that a launch's columns show now, by row, nil for a rank without
// any: those that it began with, and who took their places since. world is the largest that any
// process of it speaks of, 0 unknown.
func (w *world) current(attempt int) (current []*process, world int) {
	current = make([]*process, len(w.ranks))
	for _, p := range w.of[attempt] {
		world = max(world, int(p.Meta.WorldSize))
		if p.row >= 0 && (p.Running || !p.Later && current[p.row] == nil) {
			current[p.row] = p
		}
	}

	return current, world
}

// node is where a process runs. A name that the process told counts when the
// topology file speaks of the same names, or when the process moved; else the
// file's, which a person wrote, does.
func (w *world) node(p *process, rank int) string {
	own, file := "", w.nodeOf[rank]
	if p != nil {
		own = p.nodeName()
		first := w.heard[p.Rank]
		moved := own != "" && first != p && first.nodeName() != "" && first.nodeName() != own
		if own != "" && (file == "" || w.shared || moved) {
			return own
		}
	}

	return cmp.Or(file, "node-"+strconv.Itoa(rank))
}

// layout says who is who in a launch now.
func (w *world) layout(attempt int) *frame.Layout {
	current, world := w.current(attempt)
	n := len(w.ranks)
	l := &frame.Layout{
		Attempt: attempt, World: min(world, frame.MaxRows), Ranks: w.ranks, Stages: 1, Certain: true,
		Present: make([]bool, n), Incarnation: make([]uint64, n), Fresh: make([]bool, n),
		Node: make([]int32, n),
	}
	if l.World == 0 && w.topo != nil {
		l.World = min(w.topo.WorldSize, frame.MaxRows)
	}

	index := map[string]int32{}
	models := make([]string, n)
	several := map[string]bool{}
	for r, rank := range w.ranks {
		p := current[r]
		l.Node[r] = frame.None
		_, listed := w.nodeOf[rank]
		fits := world == 0 || rank < world
		// A rank without a process is missed where it is known to belong: the file lists it, or the job has
		// begun but once.
		l.Present[r] = p != nil || fits && (listed || len(w.nodeOf) == 0 && w.attempts == 1)
		if !l.Present[r] {
			continue
		}

		name := w.node(p, rank)
		id, ok := index[name]
		if !ok {
			id = int32(len(l.Nodes))
			index[name] = id
			l.Nodes = append(l.Nodes, name)
		}

		l.Node[r] = id
		if p == nil {
			continue
		}

		l.Incarnation[r] = p.ID
		l.Fresh[r] = p.fresh()
		if _, model, ok := strings.Cut(p.Meta.Device, " "); ok {
			models[r] = model
			several[model] = true
		}
	}

	// One model says nothing, and roles are finer only where they must be.
	if len(several) < 2 {
		models = nil
	}

	w.setRoles(l, world, current, models)
	if l.From == "inferred" {
		w.infer(l, current)
	}

	return l
}

// setRoles takes the groups that fit this attempt: the topology file's, unless it speaks
// of a world of another size or contradicts the groups that the processes told.
func (w *world) setRoles(l *frame.Layout, world int, current []*process, models []string) {
	own := rankGroups(current)
	var file []topology.Group
	if w.topo != nil && (world == 0 || w.topo.WorldSize == 0 || world == w.topo.WorldSize) {
		file = fromTopology(w.topo, world)
	}

	if g := contradicted(file, own); g != nil {
		w.note(fmt.Sprintf("the topology file contradicts group %s of dimension %s, as its processes told it, in attempt %d: the file's groups are not used", g.Name, g.Dim, l.Attempt+1))
		file = nil
	}

	l.From = "topology"
	all, seen := append(slices.Clone(file), own...), w.unnamed(l)
	switch {
	case len(file) > 0 && assign(l, file, seen, models):
	case len(own) > 0 && assign(l, own, seen, models):
		all = append(own, file...)
	default:
		// All are alike, each a replica of its own.
		l.From, l.Stages = "inferred", 1
		setRoles(l, make([]position, len(l.Ranks)), models)
		setReplicas(l, frame.NewSets(len(l.Ranks)))
	}

	setGroups(l, append(all, seen...))
}

// unnamed returns the groups that some of the ranks talk in, and of which nobody told what they are for: collectives, where
// no rank sends to another one.
func (w *world) unnamed(l *frame.Layout) (seen []topology.Group) {
	if !w.talks {
		return nil
	}

	list, p2p := w.talkers(l)
	if slices.Contains(p2p, true) {
		return nil
	}

	for _, g := range list {
		if g.Dim == "" && len(g.Ranks) > 1 && len(g.Ranks) < l.Recorded() {
			seen = append(seen, g)
		}
	}

	return seen
}

// note says something to a person, once.
func (w *world) note(text string) {
	if !slices.Contains(w.notes, text) {
		w.notes = append(w.notes, text)
	}
}
