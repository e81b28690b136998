package dataparallel

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// asWorker, when set, makes the test binary a worker of the stand-in job: the
// fault that it has, or "-".
const asWorker = "LAGGARD_EXAMPLE_WORKER"

func TestMain(m *testing.M) {
	if fault := os.Getenv(asWorker); fault != "" {
		if err := work(fault); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		os.Exit(0)
	}

	os.Exit(m.Run())
}

func work(fault string) error {
	if fault == "-" {
		fault = NoFault
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	c := Config{Listener: l, Dir: os.Getenv("CHECKPOINTS"), Fault: fault, slices: 6}
	return serve(c, os.Stdin, os.Stdout, terminate)
}

// patience bounds every wait.
const patience = 90 * time.Second

// cluster plays what MindCluster does to a job: it places ranks on nodes, starts
// and ends their processes and pods, and tells the processes to join each other
// and to train. Each node has an agent; all ship to one store.
type cluster struct {
	t       *testing.T
	laggard string
	dir     string
	rings   string
	agents  map[string]*agent
	members []*member // who trains now, in the ring's order
	all     []*member // who ever did
	joins   int
	stored  *fsnotify.Watcher // of the files of steps
}

const (
	ranksPerNode = 2
	worldSize    = 6
	jobName      = "recoveries"
	faultyNode   = "node-1"
	faultyRank   = 2 // while it is on the faulty node
)

// newCluster starts 6 ranks on 3 nodes and has them join. One rank of node-1 is
// slowed by extra work.
func newCluster(t *testing.T, laggard string) *cluster {
	t.Helper()
	rings, err := os.MkdirTemp("/dev/shm", "laggard-test-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(rings) })
	c := &cluster{t: t, laggard: laggard, dir: t.TempDir(), rings: rings, agents: map[string]*agent{}}
	if c.stored, err = fsnotify.NewWatcher(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { c.stored.Close() })
	steps := filepath.Join(c.dir, "store", row.StepsTable, "job="+jobName)
	if err := os.MkdirAll(steps, 0o755); err != nil {
		t.Fatal(err)
	}

	if err := c.stored.Add(steps); err != nil {
		t.Fatal(err)
	}

	for rank := range worldSize {
		c.members = append(c.members, c.start(rank, fmt.Sprintf("node-%d", rank/ranksPerNode), rank == faultyRank))
	}

	c.join()
	return c
}

// agent is one pod's sidecar.
type agent struct {
	command *exec.Cmd
	words   *os.File
}

func (c *cluster) store() string { return "parquet:" + filepath.Join(c.dir, "store") }

// profiling is the profiling directory of a node's host.
func (c *cluster) profiling(node string) string { return filepath.Join(c.dir, node) }

// pod starts the agent of a node's pod unless it runs.
func (c *cluster) pod(node string) {
	c.t.Helper()
	if c.agents[node] != nil {
		return
	}

	words, err := os.CreateTemp(c.dir, node+"-agent-*.log")
	if err != nil {
		c.t.Fatal(err)
	}

	a := &agent{words: words, command: exec.Command(c.laggard, "agent", "--ring-dir", filepath.Join(c.rings, node), "--dir", c.profiling(node),
		"--store", c.store(), "--node", node, "--pod", "pod-of-"+node, "--records", "all", "--flush", "300ms", "--metrics", "", "--listen", "")}
	a.command.Stderr = words
	if err := a.command.Start(); err != nil {
		c.t.Fatal(err)
	}

	c.agents[node] = a
	c.t.Cleanup(func() {
		a.command.Process.Kill()
		a.command.Wait()
		words.Close()
	})
}

// endPod ends the agents of nodes' pods as Kubernetes does, and waits for them.
func (c *cluster) endPod(nodes ...string) {
	c.t.Helper()
	for _, node := range nodes {
		c.agents[node].command.Process.Signal(syscall.SIGTERM)
	}

	for _, node := range nodes {
		a := c.agents[node]
		delete(c.agents, node)
		if err := a.command.Wait(); err != nil {
			words, _ := os.ReadFile(a.words.Name())
			c.t.Fatalf("agent of %s: %v\n%s", node, err, words)
		}
	}
}

// member is one training process.
type member struct {
	t       *testing.T
	rank    int
	node    string
	command *exec.Cmd
	in      *json.Encoder
	address string
	reports chan report
	errs    bytes.Buffer
	ended   chan struct{} // its output is read to the end

	mu     sync.Mutex
	steps  []int  // guarded by mu: the steps that it reported, ended or failed
	ranges uint64 // guarded by mu: as it last reported
	killed bool
}

// start starts the process of a rank on a node, with a pod around it.
func (c *cluster) start(rank int, node string, faulty bool) *member {
	c.t.Helper()
	c.pod(node)
	m := &member{t: c.t, rank: rank, node: node, reports: make(chan report, 4096), ended: make(chan struct{})}
	m.command = exec.Command(os.Args[0])
	fault := "-"
	if faulty {
		fault = ComputeFault
	}

	m.command.Env = append(os.Environ(), asWorker+"="+fault, "CHECKPOINTS="+c.dir, "GOMAXPROCS=1",
		"LAGGARD_JOB="+jobName, "LAGGARD_RUN="+filepath.Join(c.rings, node), "NODE_NAME="+node, "POD_NAME=pod-of-"+node,
		"RANK="+strconv.Itoa(rank), "LOCAL_RANK="+strconv.Itoa(rank%ranksPerNode), "WORLD_SIZE="+strconv.Itoa(worldSize))
	in, err := m.command.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}

	out, err := m.command.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}

	m.in, m.command.Stderr = json.NewEncoder(in), &m.errs
	if err := m.command.Start(); err != nil {
		c.t.Fatal(err)
	}

	c.t.Cleanup(func() { m.command.Process.Kill() })
	go m.read(out)
	c.all = append(c.all, m)
	m.address = m.await("ready").Address
	return m
}

func (m *member) read(out io.Reader) {
	defer close(m.ended)
	defer close(m.reports)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}

		m.mu.Lock()
		m.ranges = r.Ranges
		if r.Event == "step" || r.Event == "failed" {
			m.steps = append(m.steps, r.Step)
		}

		m.mu.Unlock()
		m.reports <- r
	}
}

// await returns the next report of one of the events; others are passed over.
func (m *member) await(events ...string) report {
	m.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case r, more := <-m.reports:
			if !more {
				m.t.Fatalf("rank %d on %s ended before %v:\n%s", m.rank, m.node, events, m.errs.String())
			}

			if slices.Contains(events, r.Event) {
				return r
			}
		case <-deadline:
			m.t.Fatalf("rank %d on %s: no report %v after %v", m.rank, m.node, events, patience)
		}
	}
}

func (m *member) order(o order) {
	m.t.Helper()
	if err := m.in.Encode(o); err != nil {
		m.t.Fatalf("order to rank %d: %v", m.rank, err)
	}
}

// kill ends a process by SIGKILL.
func (m *member) kill() {
	m.killed = true
	m.command.Process.Kill()
	<-m.ended
	m.command.Wait()
}

// leave waits for the end of a process that was told to go.
func (m *member) leave() {
	m.t.Helper()
	m.await("left")
	<-m.ended
	if err := m.command.Wait(); err != nil {
		m.t.Fatalf("rank %d on %s: %v\n%s", m.rank, m.node, err, m.errs.String())
	}
}

// join has the members build their communicator, under a new name each time.
func (c *cluster) join() {
	c.t.Helper()
	c.joins++
	all := membership{Name: fmt.Sprintf("dp0.%d", c.joins)}
	for _, m := range c.members {
		all.Ranks = append(all.Ranks, m.rank)
		all.Addresses = append(all.Addresses, m.address)
	}

	for _, m := range c.members {
		m.order(order{Join: &all})
	}

	for _, m := range c.members {
		m.await("joined")
	}
}

// train has every member do a span of steps; a step that fails fails the test.
func (c *cluster) train(from, to int) {
	c.t.Helper()
	c.begin(span{From: from, To: to})
	for _, m := range c.members {
		if r := m.await("done", "failed"); r.Event == "failed" {
			c.t.Fatalf("rank %d: step %d failed: %s", m.rank, r.Step, r.Cause)
		}
	}
}

func (c *cluster) begin(s span) {
	for _, m := range c.members {
		m.order(order{Train: &s})
	}
}

// failed waits until the members have failed in a step, and returns the earliest.
func (c *cluster) failed(members ...*member) int {
	c.t.Helper()
	step := 1 << 30
	for _, m := range members {
		step = min(step, m.await("failed").Step)
	}

	return step
}

// reach waits until a member has done a step.
func (m *member) reach(step int) {
	m.t.Helper()
	for m.await("step", "failed").Step < step {
	}
}

// replace puts a new process in the place of the rank that it has.
func (c *cluster) replace(m *member) {
	i := slices.IndexFunc(c.members, func(o *member) bool { return o.rank == m.rank })
	c.members[i] = m
}

// on returns the members on a node, and the others.
func (c *cluster) on(node string) (there, elsewhere []*member) {
	for _, m := range c.members {
		if m.node == node {
			there = append(there, m)
		} else {
			elsewhere = append(elsewhere, m)
		}
	}

	return there, elsewhere
}

// analyze returns the verdict on what is stored once that reaches a step.
func (c *cluster) analyze(step int) *verdict.Verdict {
	c.t.Helper()
	for deadline := time.After(patience); ; {
		out, err := exec.Command(c.laggard, "analyze", c.store(), "--job", jobName, "-o", "json").Output()
		var v verdict.Verdict
		if json.Unmarshal(out, &v) == nil && v.Steps.Last >= int64(step) {
			return &v
		}

		for came := false; !came; {
			select {
			case e := <-c.stored.Events:
				came = e.Has(fsnotify.Create) && filepath.Ext(e.Name) == parquet.Suffix
			case <-c.stored.Errors: // events were lost
				came = true
			case <-deadline:
				c.t.Fatalf("step %d is not stored after %v: %s, %v", step, patience, out, err)
			}
		}
	}
}

// names holds a verdict to the truth: exactly this node is a culprit in this state,
// for its extra compute work; "" is nobody. Links are logged: jobs run beside each
// other here and slow each other's loopback. So are suspects, whom the verdict does
// not accuse: another job may take a rank's processor for some steps.
func (c *cluster) names(v *verdict.Verdict, when, node, state string, ranks ...int) {
	c.t.Helper()
	said, _ := json.Marshal(v)
	if !v.Decided {
		c.t.Errorf("%s: not decided: %s", when, said)
	}

	for _, l := range v.Links {
		c.t.Logf("%s: link %s: %s", when, l.Group, l.Detail)
	}

	named := slices.DeleteFunc(slices.Clone(v.Nodes), func(n verdict.Node) bool { return n.State == verdict.Suspect })
	if len(named) < len(v.Nodes) {
		c.t.Logf("%s: suspects: %s", when, said)
	}

	if node == "" {
		if len(named) > 0 {
			c.t.Errorf("%s: want nobody named: %s", when, said)
		}

		return
	}

	if len(named) != 1 {
		c.t.Errorf("%s: want %s %s: %s", when, node, state, said)
		return
	}

	if n := named[0]; n.Node != node || n.State != state || n.Cause != verdict.Compute || !slices.Equal(n.Ranks, ranks) {
		c.t.Errorf("%s: want %s %s, ranks %v: %s", when, node, state, ranks, said)
	}
}
