package depth

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// agents are the switches of a job's nodes: what each recorder was told last, and
// by whom.
type agents struct {
	mu    sync.Mutex
	nodes map[string]Setting
	down  map[string]bool
	most  int // nodes on by us at once
	sets  []string
}

func newAgents() *agents { return &agents{nodes: map[string]Setting{}, down: map[string]bool{}} }

func (a *agents) setting(node string) Setting {
	if s, ok := a.nodes[node]; ok {
		return s
	}

	return Setting{Light: true}
}

func (a *agents) Get(_ context.Context, _, node string) ([]Setting, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down[node] {
		return nil, errors.New("connection refused")
	}

	return []Setting{a.setting(node)}, nil
}

func (a *agents) Set(_ context.Context, _, node string, on bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sets = append(a.sets, fmt.Sprint(node, " ", on))
	a.nodes[node] = Setting{Light: true, Communication: on, Ours: true}
	n := 0
	for _, s := range a.nodes {
		if s.Communication && s.Ours {
			n++
		}
	}

	a.most = max(a.most, n)
	return nil
}

// on lists the nodes that record Communication.
func (a *agents) on() (nodes []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n, s := range a.nodes {
		if s.Communication {
			nodes = append(nodes, n)
		}
	}

	slices.Sort(nodes)
	return nodes
}

// layout is a job of two ranks a node; pipelines of two neighbouring nodes, and one
// group of all of its first ranks.
func layout(nodes int) *frame.Layout {
	l := &frame.Layout{World: 2 * nodes}
	for n := range nodes {
		l.Nodes = append(l.Nodes, fmt.Sprint("n", n))
		for k := range 2 {
			l.Ranks, l.Present, l.Node = append(l.Ranks, 2*n+k), append(l.Present, true), append(l.Node, int32(n))
		}
	}

	for n := 0; n+1 < nodes; n += 2 {
		g := frame.Group{Name: fmt.Sprint("pp", n), Dim: "pp", Rows: []int32{int32(2 * n), int32(2*n + 1), int32(2*n + 2), int32(2*n + 3)}, Size: 4}
		l.Groups = append(l.Groups, g)
	}

	return l
}

type bench struct {
	*Depth
	a    *agents
	l    *frame.Layout
	now  time.Time
	step int64
}

func newBench(t *testing.T, a *agents, change func(*Options)) *bench {
	t.Helper()
	b := &bench{a: a, l: layout(8), now: time.Unix(1_800_000_000, 0)}
	o := Options{Switch: a, Nodes: 3, Now: func() time.Time { return b.now }}
	if change != nil {
		change(&o)
	}

	var err error
	if b.Depth, err = New(o); err != nil {
		t.Fatal(err)
	}

	return b
}

// look is one look of the watcher ten steps later, with the suspect ranks, and the
// nodes that are named.
func (b *bench) look(t *testing.T, job string, suspects []int32, named ...verdict.Node) {
	t.Helper()
	b.step += 10
	b.now = b.now.Add(10 * time.Second)
	v := verdict.New(job)
	v.Steps.Last, v.Nodes = b.step, named
	b.Observe(v, detect.Suspects{Rows: suspects, Layout: b.l})
	b.sync(t)
}

func (b *bench) sync(t *testing.T) {
	t.Helper()
	for range 3 {
		b.Sync(t.Context())
	}
}

func (b *bench) wantOn(t *testing.T, where string, nodes ...string) {
	t.Helper()
	if got := b.a.on(); !slices.Equal(got, nodes) {
		t.Fatalf("%s: Communication is on at %v, want %v; calls %v", where, got, nodes, b.a.sets)
	}
}

func blame(node, cause string) verdict.Node {
	return verdict.Node{Node: node, State: verdict.Degraded, Cause: cause}
}

// TestCase: on at once for the suspect and its peers, off when it is decided and
// the evidence is in, and not again for what was decided.
func TestCase(t *testing.T) {
	b := newBench(t, newAgents(), nil)
	b.look(t, "j", nil)
	b.wantOn(t, "nobody suspect")
	b.look(t, "j", []int32{4})
	b.wantOn(t, "rank 4 suspect", "n2", "n3")
	b.look(t, "j", []int32{4}, blame("n2", verdict.Compute))
	b.wantOn(t, "named before the evidence", "n2", "n3")
	for range 3 {
		b.look(t, "j", []int32{4}, blame("n2", verdict.Compute))
	}

	b.wantOn(t, "decided")
	for range 5 {
		b.look(t, "j", []int32{4}, blame("n2", verdict.Compute))
	}

	if len(b.a.sets) != 4 {
		t.Fatalf("switched again for what was decided: %v", b.a.sets)
	}

	b.look(t, "j", nil, verdict.Node{Node: "n2", State: verdict.Recovered})
	b.look(t, "j", []int32{4})
	b.wantOn(t, "slow again after it recovered", "n2", "n3")
}

// TestPassing: a suspicion that goes away is a case that ends.
func TestPassing(t *testing.T) {
	b := newBench(t, newAgents(), nil)
	b.look(t, "j", []int32{0})
	b.wantOn(t, "suspect", "n0", "n1")
	for range 4 {
		b.look(t, "j", nil)
	}

	b.wantOn(t, "gone")
}

// TestUndecided: after Longest it ends whatever is known, also when nobody looks at
// the job any more, and rests for Again.
func TestUndecided(t *testing.T) {
	b := newBench(t, newAgents(), nil)
	b.look(t, "j", []int32{0})
	b.now = b.now.Add(DefaultLongest)
	b.sync(t)
	b.wantOn(t, "nobody looks any more")
	b.look(t, "j", []int32{0})
	b.look(t, "j", []int32{0})
	b.wantOn(t, "at rest")
	b.now = b.now.Add(restFor)
	b.look(t, "j", []int32{0})
	b.wantOn(t, "rested", "n0", "n1")
}

// TestSlowerJob: where only step times rise, groups are looked at whole, up to the cap.
func TestSlowerJob(t *testing.T) {
	b := newBench(t, newAgents(), func(o *Options) { o.Nodes = 4 })
	v := verdict.New("j")
	v.Steps.Last = 100
	b.Observe(v, detect.Suspects{Slower: 0.3, Since: 90, Layout: b.l})
	b.sync(t)
	b.wantOn(t, "slower", "n0", "n1", "n2", "n3")
	v.Steps.Last = 140
	v.Links = []verdict.Link{{Group: "pp0", Nodes: []string{"n0", "n1"}, State: verdict.Degraded}}
	for range 3 {
		b.Observe(v, detect.Suspects{Slower: 0.3, Since: 90, Layout: b.l})
		b.sync(t)
	}

	b.wantOn(t, "the link is named")
}

// TestPersonsSwitchIsTheirs: what a person turned on stays on, before or during the
// case; where a person turned everything off nothing is turned on.
func TestPersonsSwitchIsTheirs(t *testing.T) {
	a := newAgents()
	person := Setting{Light: true, Communication: true}
	a.nodes["n0"], a.nodes["n1"] = person, Setting{}
	b := newBench(t, a, func(o *Options) { o.Nodes = 8 })
	b.look(t, "j", []int32{0, 4})
	b.wantOn(t, "suspects", "n0", "n2", "n3")
	a.nodes["n2"] = person // during the case
	for range 4 {
		b.look(t, "j", nil)
	}

	b.wantOn(t, "decided: the person's stay", "n0", "n2")
	if a.nodes["n1"] != (Setting{}) {
		t.Fatal("n1 was switched though a person had turned everything off")
	}
}

func TestDryRun(t *testing.T) {
	dir := t.TempDir()
	b := newBench(t, newAgents(), func(o *Options) { o.DryRun, o.StateFile = true, filepath.Join(dir, "depth.json") })
	for i := range 20 {
		b.look(t, "j", []int32{int32(i % 16)})
	}

	if len(b.a.sets) != 0 {
		t.Fatalf("switched in a dry run: %v", b.a.sets)
	}

	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Fatalf("a dry run left %v, %v", files, err)
	}
}

// TestRestart: what an earlier process left on is turned off, also when its agent
// could not be reached for a while.
func TestRestart(t *testing.T) {
	a := newAgents()
	file := filepath.Join(t.TempDir(), "depth.json")
	keep := func(o *Options) { o.StateFile = file }
	b := newBench(t, a, keep)
	b.look(t, "j", []int32{4})
	b.wantOn(t, "before the kill", "n2", "n3")
	a.down["n2"] = true
	b = newBench(t, a, keep)
	b.sync(t)
	b.wantOn(t, "one agent is away", "n2")
	if nodes, failures := b.Places(); nodes != 1 || failures == 0 {
		t.Fatalf("%d places, %d failures", nodes, failures)
	}

	a.down["n2"] = false
	b.now = b.now.Add(time.Minute)
	b.sync(t)
	b.wantOn(t, "it is back")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := New(Options{StateFile: file}); err == nil || !strings.Contains(err.Error(), "trace status") {
		t.Fatalf("a damaged state: %v, want what to do", err)
	}
}

// TestCapHolds looks at three jobs whose suspects change at random, over agents that
// go away and processes that are killed: there are never more nodes on than the cap.
func TestCapHolds(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "laggard-depth-") // a sync there costs nothing
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a := newAgents()
		file := filepath.Join(dir, fmt.Sprint(seed))
		const limit = 3
		options := func(o *Options) { o.Nodes, o.StateFile = limit, file }
		b := newBench(t, a, options)
		for range 300 {
			var suspects []int32
			for r := range int32(16) {
				if rng.IntN(12) == 0 {
					suspects = append(suspects, r)
				}
			}

			var named []verdict.Node
			if rng.IntN(3) == 0 && len(suspects) > 0 {
				named = append(named, blame(b.l.Nodes[suspects[0]/2], verdict.Compute))
			}

			b.look(t, "j", suspects, named...)
			node := fmt.Sprint("n", rng.IntN(8))
			a.down[node] = rng.IntN(2) == 0
			if rng.IntN(20) == 0 {
				now, step := b.now, b.step
				b = newBench(t, a, options)
				b.now, b.step = now, step
			}
		}

		if a.most != limit {
			t.Fatalf("seed %d: %d nodes were on at once, want %d", seed, a.most, limit)
		}

		clear(a.down)
		for range 200 { // rests, retries and the last evidence
			b.look(t, "j", nil)
			b.now = b.now.Add(time.Minute)
		}

		b.wantOn(t, "in the end")
	}
}
