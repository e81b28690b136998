package dataparallel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestRecoveries plays each recovery that MindCluster knows with real processes,
// rings, agents and a store: 6 ranks on 3 nodes, one rank of node-1 given extra
// compute work. In each the verdict must be right before, during and after; then
// the books are closed: attempts, steps that repeat, the nodes of each rank's
// processes, and every record once, by count and by sequence number.
func TestRecoveries(t *testing.T) {
	laggard := os.Getenv("LAGGARD_PROGRAM") // one that is built
	if laggard == "" {
		laggard = filepath.Join(t.TempDir(), "laggard")
		if out, err := exec.Command("go", "build", "-o", laggard, "github.com/laggard-dev/laggard").CombinedOutput(); err != nil {
			t.Fatalf("build laggard: %v\n%s", err, out)
		}
	}

	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, r := range []struct {
		name string
		play func(*cluster)
	}{
		{"job rescheduling", jobRescheduling},
		{"pod rescheduling", podRescheduling},
		{"process rescheduling", processRescheduling},
		{"recover in place", recoverInPlace},
		{"retry", retry},
		{"elastic training", elasticTraining},
		{"hot switch", hotSwitch},
		{"graceful exit", gracefulExit},
		{"dynamic cluster", dynamicCluster},
	} {
		g.Go(func() error {
			t.Run(r.name, func(t *testing.T) { r.play(newCluster(t, laggard)) })
			return nil
		})
	}

	g.Wait()
}

// atOnce is how many recoveries are played at a time: each takes about half a core.
const atOnce = 3

// Steps of the job's parts. A verdict rests on 32 steps, and a state changes when
// most of them have passed.
const (
	part       = 64
	checkpoint = 60 // the last one before the end of the first part
)

// before trains the first part and holds the verdict on it.
func (c *cluster) before() {
	c.t.Helper()
	c.train(0, part)
	v := c.analyze(part - 2)
	c.names(v, "before", faultyNode, verdict.Degraded, faultyRank)
	if v.Attempts != 1 || v.WorldSize != worldSize {
		c.t.Errorf("before: %d attempts of %d ranks, want 1 of %d", v.Attempts, v.WorldSize, worldSize)
	}
}

// during holds the verdict while nobody trains: the culprit is the one of before.
func (c *cluster) during() {
	c.t.Helper()
	c.names(c.analyze(part-2), "during", faultyNode, verdict.Degraded, faultyRank)
}

// after trains on and holds the verdict at the end, when all processes have gone.
func (c *cluster) after(from int, state string, attempts int, ranks ...int) {
	c.t.Helper()
	c.train(from, 2*part)
	c.finish()
	v := c.analyze(2*part - 1)
	c.names(v, "after", faultyNode, state, ranks...)
	if v.Attempts != attempts {
		c.t.Errorf("after: %d attempts, want %d", v.Attempts, attempts)
	}

	c.books()
}

// finish ends the job, and the agents when they have shipped everything.
func (c *cluster) finish() {
	c.t.Helper()
	for _, m := range c.members {
		m.order(order{Leave: true})
	}

	for _, m := range c.members {
		m.leave()
	}

	var nodes []string
	for node := range c.agents {
		nodes = append(nodes, node)
	}

	c.endPod(nodes...)
}

// jobRescheduling: every process and pod is new, one node is left for another.
func jobRescheduling(c *cluster) {
	c.before()
	for _, m := range c.members {
		m.kill()
	}

	c.endPod("node-0", "node-1", "node-2")
	c.during()
	for _, m := range c.members {
		node := m.node
		if node == faultyNode {
			node = "node-3"
		}

		c.replace(c.start(m.rank, node, false))
	}

	c.join()
	c.after(checkpoint, verdict.Recovered, 2, faultyRank)
}

// podRescheduling: one pod is new, on another node; all training processes are.
func podRescheduling(c *cluster) {
	c.before()
	for _, m := range c.members {
		m.kill()
	}

	c.endPod("node-0")
	c.during()
	for _, m := range c.members {
		node := m.node
		if node == "node-0" {
			node = "node-3"
		}

		c.replace(c.start(m.rank, node, m.rank == faultyRank))
	}

	c.join()
	c.after(checkpoint, verdict.Degraded, 2, faultyRank)
}

// processRescheduling: the processes of one node die in a step and begin again on
// another one; the others stay, build new communicators and redo the step.
func processRescheduling(c *cluster) {
	c.before()
	lost, left := c.on(faultyNode)
	c.begin(span{From: part, To: 2 * part})
	left[0].reach(part + 3)
	for _, m := range lost {
		m.kill()
	}

	step := c.failed(left...)
	c.endPod(faultyNode)
	c.during()
	for _, m := range lost {
		c.replace(c.start(m.rank, "node-3", false))
	}

	c.join()
	c.after(step, verdict.Recovered, 1, faultyRank)
}

// recoverInPlace: one process dies by SIGKILL and begins again where it was.
func recoverInPlace(c *cluster) {
	c.before()
	lost := c.members[4]
	c.begin(span{From: part, To: 2 * part})
	c.members[0].reach(part + 3)
	lost.kill()
	var left []*member
	for _, m := range c.members {
		if m != lost {
			left = append(left, m)
		}
	}

	step := c.failed(left...)
	c.during()
	c.replace(c.start(lost.rank, lost.node, false))
	c.join()
	c.after(step, verdict.Degraded, 1, faultyRank)
}

// retry: a link breaks in a step, no process dies, the step is done again.
func retry(c *cluster) {
	c.before()
	for i, m := range c.members {
		s := span{From: part, To: 2 * part}
		if i == 5 {
			s.Cut = part + 4
		}

		m.order(order{Train: &s})
	}

	step := c.failed(c.members...)
	c.during()
	c.join()
	c.after(step, verdict.Degraded, 1, faultyRank)
}

// elasticTraining: a node's ranks are taken out, the others go on in their
// processes with a smaller world; then they are added again.
func elasticTraining(c *cluster) {
	c.before()
	out, left := c.on("node-2")
	c.begin(span{From: part, To: 2 * part})
	left[0].reach(part + 3)
	for _, m := range out {
		m.kill()
	}

	step := c.failed(left...)
	c.endPod("node-2")
	c.during()
	c.members = left
	c.join()
	c.train(step, part+part/2)
	v := c.analyze(part + part/2 - 2)
	c.names(v, "scaled in", faultyNode, verdict.Degraded, faultyRank)
	for _, m := range out {
		c.members = append(c.members, c.start(m.rank, m.node, false))
	}

	c.join()
	c.after(part+part/2, verdict.Degraded, 1, faultyRank)
}

// hotSwitch: the backup of a slow node's pod starts beside it and loads, training
// pauses, the backup takes over and the old pod goes.
func hotSwitch(c *cluster) {
	c.before()
	old, _ := c.on(faultyNode)
	var backup []*member
	for _, m := range old {
		b := c.start(m.rank, "node-3", false)
		b.order(order{Warm: 20})
		backup = append(backup, b)
	}

	c.train(part, part+8) // while the backup loads
	for _, b := range backup {
		b.await("warm")
	}

	c.during()
	for _, b := range backup {
		c.replace(b)
	}

	c.join()
	for _, m := range old {
		m.order(order{Leave: true})
		m.leave()
	}

	c.endPod(faultyNode)
	c.after(part+8, verdict.Recovered, 1, faultyRank)
}

// gracefulExit: SIGTERM to everything; each process saves a last checkpoint and
// goes, and the job is launched again with its ranks on other nodes. The faulty
// node stays what it is, whichever rank it runs.
func gracefulExit(c *cluster) {
	c.before()
	c.begin(span{From: part, To: 2 * part})
	c.members[0].reach(part + 3)
	for _, m := range c.members {
		m.command.Process.Signal(syscall.SIGTERM)
	}

	c.endPod("node-0", "node-1", "node-2")
	for _, m := range c.members {
		m.leave()
	}

	c.during()
	for _, m := range c.members {
		node := fmt.Sprintf("node-%d", (m.rank/ranksPerNode+2)%3)
		c.replace(c.start(m.rank, node, m.rank == 4))
	}

	c.join()
	c.after(part+3, verdict.Degraded, 2, 4)
}

// dynamicCluster: MindSpore's. A worker dies and comes back a while later (30 s
// there, a little here); the others wait in their processes, and all roll back to
// the last checkpoint.
func dynamicCluster(c *cluster) {
	c.before()
	lost := c.members[5]
	c.begin(span{From: part, To: 2 * part})
	c.members[0].reach(part + 3)
	lost.kill()
	c.failed(c.members[:5]...)
	<-time.After(pause())
	c.during()
	c.replace(c.start(lost.rank, lost.node, false))
	c.join()
	c.after(checkpoint, verdict.Degraded, 1, faultyRank)
}
