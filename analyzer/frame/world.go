package frame

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/topology"
)

// maxRows bounds the ranks of a job: what lies beyond is cut, never refused.
const maxRows = 1 << 20

// World makes the layouts of a job out of its processes.
type World struct {
	Size     int      // the largest world seen; 0 unknown
	Ranks    []int    // global rank of each row, ascending
	Attempts int      // launches of the job
	Notes    []string // sentences for a person

	topo   *topology.File
	all    []*Process
	of     [][]*Process        // each launch
	heard  map[uint32]*Process // of each rank, the process that was heard of first
	seen   [MetricCount]bool
	talks  bool           // communicators are known
	nodeOf map[int]string // of the topology file
	shared bool           // the topology and the processes use the same node names
}

// NewWorld takes all processes, those of one rank in the order in which they were heard
// of. seen says what any of them measured; topo is what is known of nodes and groups
// beside them, nil where that is nothing.
func NewWorld(all []*Process, seen [MetricCount]bool, topo *topology.File) *World {
	w := &World{topo: topo, all: all, heard: make(map[uint32]*Process, len(all)), seen: seen, nodeOf: map[int]string{}}
	rows := map[int]bool{}
	for _, p := range all {
		if w.heard[p.Rank] == nil {
			w.heard[p.Rank] = p
		}

		if p.Steps > 0 {
			rows[int(p.Rank)] = true
		}

		w.talks = w.talks || len(p.Talks) > 0
		w.Size = max(w.Size, int(min(p.Meta.WorldSize, maxRows)))
	}

	if topo != nil {
		w.Size = max(w.Size, topo.WorldSize)
		w.readNodes(rows)
	}

	for r := range rows {
		w.Ranks = append(w.Ranks, r)
	}

	slices.Sort(w.Ranks)
	w.Attempts = launches(all)
	w.of = make([][]*Process, w.Attempts)
	for _, p := range all {
		w.of[p.Attempt] = append(w.of[p.Attempt], p)
	}

	return w
}

// readNodes takes the ranks and the node names of the topology file.
func (w *World) readNodes(rows map[int]bool) {
	for name, ranks := range w.topo.Nodes {
		for _, r := range ranks {
			if r >= 0 && len(rows) < maxRows {
				rows[r] = true
			}

			if old, ok := w.nodeOf[r]; !ok || name < old {
				w.nodeOf[r] = name
			}
		}
	}

	for _, p := range w.all {
		if _, ok := w.topo.Nodes[p.NodeName()]; ok {
			w.shared = true
		}
	}
}

// Row returns the row of a rank, -1 where it has none.
func (w *World) Row(rank uint32) int {
	if k, ok := slices.BinarySearch(w.Ranks, int(rank)); ok {
		return k
	}

	return -1
}

// rows are those of the ranks that have one.
func (w *World) rows(ranks []int) (rows []int32) {
	for _, rank := range ranks {
		if k := w.Row(uint32(rank)); k >= 0 {
			rows = append(rows, int32(k))
		}
	}

	return rows
}

// Current returns the processes that a launch's columns show now, by row, nil for a rank without
// any: those that it began with, and who took their places since. world is the largest that any
// process of it speaks of, 0 unknown.
func (w *World) Current(attempt int) (current []*Process, world int) {
	current = make([]*Process, len(w.Ranks))
	for _, p := range w.of[attempt] {
		world = max(world, int(p.Meta.WorldSize))
		if k := w.Row(p.Rank); k >= 0 && (p.Running || !p.Later && current[k] == nil) {
			current[k] = p
		}
	}

	return current, world
}

// node is where a process runs. A name that the process told counts when the
// topology file speaks of the same names, or when the process moved; else the
// file's, which a person wrote, does.
func (w *World) node(p *Process, rank int) string {
	own, file := "", w.nodeOf[rank]
	if p != nil {
		own = p.NodeName()
		first := w.heard[p.Rank]
		moved := own != "" && first != p && first.NodeName() != "" && first.NodeName() != own
		if own != "" && (file == "" || w.shared || moved) {
			return own
		}
	}

	return cmp.Or(file, "node-"+strconv.Itoa(rank))
}

// Layout says who is who in a launch now.
func (w *World) Layout(attempt int) *Layout {
	current, world := w.Current(attempt)
	n := len(w.Ranks)
	l := &Layout{
		Attempt: attempt, World: min(world, maxRows), Ranks: w.Ranks, Stages: 1, Certain: true,
		Present: make([]bool, n), Incarnation: make([]uint64, n), Fresh: make([]bool, n),
		Node: make([]int32, n),
	}
	if l.World == 0 && w.topo != nil {
		l.World = min(w.topo.WorldSize, maxRows)
	}

	index := map[string]int32{}
	models := make([]string, n)
	several := map[string]bool{}
	for r, rank := range w.Ranks {
		p := current[r]
		l.Node[r] = None
		_, listed := w.nodeOf[rank]
		fits := world == 0 || rank < world
		// A rank without a process is missed where it is known to belong: the file lists it, or the job has
		// begun but once.
		l.Present[r] = p != nil || fits && (listed || len(w.nodeOf) == 0 && w.Attempts == 1)
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
func (w *World) setRoles(l *Layout, world int, current []*Process, models []string) {
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
	switch {
	case len(file) > 0 && l.assign(file, models):
		l.setGroups(append(file, own...))
	case len(own) > 0 && l.assign(own, models):
		l.setGroups(append(own, file...))
	default:
		// All are alike, each a replica of its own.
		l.From, l.Stages = "inferred", 1
		l.setRoles(make([]position, len(l.Ranks)), models)
		l.setReplicas(NewSets(len(l.Ranks)))
		l.setGroups(append(file, own...))
	}
}

// note says something to a person, once.
func (w *World) note(text string) {
	if !slices.Contains(w.Notes, text) {
		w.Notes = append(w.Notes, text)
	}
}
