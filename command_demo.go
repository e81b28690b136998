package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/analyzer/report"
	"github.com/laggard-dev/laggard/deploy/examples/dataparallel"
	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// The demo's job: small enough for two cores, large enough for a verdict.
const (
	demoJob          = "demo"
	demoNodes        = 3
	demoRanksPerNode = 2
	demoWorld        = demoNodes * demoRanksPerNode
)

// demo is a run of the pipeline: what its flags say, and what it has made so far.
type demo struct {
	dir, fault string
	steps      int
	slowRank   int
	healthy    bool
	rings      string               // on tmpfs
	links      []*dataparallel.Link // of the slow node, with the link fault
	out        io.Writer
	progress   *progress
}

// demoCommand shows the whole way on one machine, with real processes and a real fault.
func demoCommand() *cobra.Command {
	d := &demo{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "whole pipeline here: real worker processes, one slowed, verdict and HTML report",
		Long: `demo starts 6 real worker processes as 3 nodes of 2 ranks, which compute and synchronise over loopback TCP like data-parallel training,
and one agent a node. One worker is slowed by real extra work, or the wires of its node by a rate limit. The way goes through rings, segment files and a Parquet store;
the analyzer is told nothing but the store. It fails when the verdict is wrong.`,
		Example: `  laggard demo
  laggard demo --fault dataloader --slow-rank 3
  laggard demo --healthy`,
		RunE: func(c *cobra.Command, _ []string) error {
			d.out = c.OutOrStdout()
			return d.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&d.dir, "dir", "", "where files, store and report go (default a new folder under the temporary one)")
	f.StringVar(&d.fault, "fault", dataparallel.ComputeFault, "what slows the worker: compute, dataloader, checkpoint, or the link of its node")
	f.BoolVar(&d.healthy, "healthy", false, "slow nobody")
	f.IntVar(&d.slowRank, "slow-rank", -1, "which rank is slowed (default drawn by chance)")
	f.IntVar(&d.steps, "steps", 160, "training steps")
	return c
}

// run prepares, trains, analyzes and holds the verdict against what was done.
func (d *demo) run(ctx context.Context) error {
	if err := d.prepare(); err != nil {
		return err
	}

	defer os.RemoveAll(d.rings)
	fmt.Fprintf(os.Stderr, "demo: %d workers on %d nodes, %d steps, files in %s\n", demoWorld, demoNodes, d.steps, d.dir)
	d.progress = newProgress("training")
	if err := d.train(ctx); err != nil {
		return err
	}

	d.progress.done()
	v, err := d.analyze(ctx)
	if err != nil {
		return err
	}

	return d.judge(v)
}

// prepare checks the flags and makes the folders.
func (d *demo) prepare() error {
	if d.healthy {
		d.fault = dataparallel.NoFault
	}

	known := []string{dataparallel.NoFault, dataparallel.ComputeFault, dataparallel.DataLoaderFault, dataparallel.CheckpointFault, dataparallel.LinkFault}
	if !slices.Contains(known, d.fault) {
		return usage("unknown fault %q%s", d.fault, didYouMean(d.fault, known[1:]))
	}

	if d.slowRank >= demoWorld {
		return usage("--slow-rank %d: the demo has ranks 0 to %d", d.slowRank, demoWorld-1)
	}

	if least := d.leastSteps(); d.steps < least {
		return usage("--steps %d: a verdict takes %d steps at least", d.steps, least)
	}

	if d.slowRank < 0 {
		d.slowRank = rand.IntN(demoWorld)
	}

	var err error
	if d.dir == "" {
		d.dir, err = os.MkdirTemp("", "laggard-demo-")
	} else {
		d.dir, err = filepath.Abs(d.dir)
		if err == nil {
			err = os.MkdirAll(d.dir, 0o755)
		}
	}

	if err != nil {
		return fmt.Errorf("make the demo's folder: %w", err)
	}

	if entries, _ := filepath.Glob(d.store() + "/*"); len(entries) > 0 {
		return fmt.Errorf("%s has a demo's store already: name another --dir or remove it", d.dir)
	}

	shm := "/dev/shm" // rings belong on tmpfs; a machine without one has them in the demo's folder
	if info, err := os.Stat(shm); err != nil || !info.IsDir() {
		shm = d.dir
	}

	d.rings, err = os.MkdirTemp(shm, "laggard-demo-")
	if err != nil {
		return fmt.Errorf("make the demo's ring folder: %w", err)
	}

	return nil
}

// leastSteps is how many steps make the verdict sure: a link is told from congestion
// by how long it stays slow, after a time in which it was not.
func (d *demo) leastSteps() int {
	if d.fault == dataparallel.LinkFault {
		return 160
	}

	return 60
}

// store is what all agents of the demo ship to: one store, as a job on several machines has.
func (d *demo) store() string { return filepath.Join(d.dir, "store") }

// demoNode is the node that a rank is said to run on.
func demoNode(rank int) string { return fmt.Sprintf("node-%d", rank/demoRanksPerNode) }

// ringDir is where the workers of a node make their rings: each node's agent drains its own.
func (d *demo) ringDir(node string) string { return filepath.Join(d.rings, node) }

// train runs the workers and the agents to their end.
func (d *demo) train(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range demoNodes {
		node := demoNode(i * demoRanksPerNode)
		g.Go(func() error { return d.agent(ctx, node) })
	}

	// The ports are bound here and handed on as open files: no worker can find its port taken.
	listeners := make([]*os.File, demoWorld)
	addresses := make([]string, demoWorld)
	for rank := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listen for rank %d: %w", rank, err)
		}

		addresses[rank] = l.Addr().String()
		listeners[rank], err = l.(*net.TCPListener).File()
		l.Close()
		if err != nil {
			return fmt.Errorf("listen for rank %d: %w", rank, err)
		}
	}

	if err := d.layLinks(addresses); err != nil {
		return err
	}

	for _, l := range d.links {
		g.Go(func() error { return l.Run(ctx) })
	}

	for rank, l := range listeners {
		g.Go(func() error {
			defer l.Close()
			return d.worker(ctx, rank, l, addresses)
		})
	}

	return g.Wait()
}

// self returns a command that runs this program again.
func self(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}

	c := exec.CommandContext(ctx, path, args...)
	c.Env = os.Environ()
	// SIGTERM and half a minute: an agent that is stopped ships first.
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 30 * time.Second
	return c, nil
}

// agent ships what the workers of a node record, and leaves two seconds after the last of them.
func (d *demo) agent(ctx context.Context, node string) error {
	c, err := self(ctx, "agent", "--ring-dir", d.ringDir(node), "--dir", filepath.Join(d.dir, node),
		"--store", "parquet:"+d.store(), "--node", node, "--metrics", "127.0.0.1:0", "--until-idle", "2s")
	if err != nil {
		return err
	}

	return runLogged(c, filepath.Join(d.dir, node+".log"), "agent of "+node)
}

// worker runs one rank, on one core: all six share the machine's. Rank 0 tells how far the job is;
// the others are as far, as they wait for each other.
func (d *demo) worker(ctx context.Context, rank int, listener *os.File, addresses []string) error {
	args := []string{"demo-worker", "--steps", strconv.Itoa(d.steps), "--addresses", strings.Join(addresses, ","), "--dir", d.dir}
	switch {
	case d.fault == dataparallel.LinkFault:
		args = append(args, "--experts")
	case d.fault != dataparallel.NoFault && rank == d.slowRank:
		args = append(args, "--fault", d.fault)
	}

	c, err := self(ctx, args...)
	if err != nil {
		return err
	}

	c.ExtraFiles = []*os.File{listener}
	node := demoNode(rank)
	c.Env = append(c.Env, "GOMAXPROCS=1", "LAGGARD_JOB="+demoJob, "LAGGARD_RUN="+d.ringDir(node), "NODE_NAME="+node,
		"RANK="+strconv.Itoa(rank), "LOCAL_RANK="+strconv.Itoa(rank%demoRanksPerNode), "WORLD_SIZE="+strconv.Itoa(demoWorld))
	if rank == 0 {
		steps, err := c.StdoutPipe()
		if err != nil {
			return err
		}

		go d.follow(bufio.NewScanner(steps))
	}

	return runLogged(c, filepath.Join(d.dir, fmt.Sprintf("rank-%d.log", rank)), fmt.Sprintf("worker of rank %d", rank))
}

// runLogged runs a command with its words in a file, which the error quotes the end of.
func runLogged(c *exec.Cmd, path, what string) error {
	log, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("log of the %s: %w", what, err)
	}
	defer log.Close()
	c.Stderr = log
	if err := c.Run(); err != nil {
		words, _ := os.ReadFile(path)
		if len(words) > 600 {
			words = words[len(words)-600:]
		}

		return fmt.Errorf("%s: %w; the end of %s:\n%s", what, err, path, words)
	}

	return nil
}

// analyze prints the verdict on the store and writes the report beside it.
func (d *demo) analyze(ctx context.Context) (*verdict.Verdict, error) {
	a := &analysis{source: "parquet:" + d.store(), job: demoJob, minImpact: defaultMinImpact}
	v, err := a.decide(ctx)
	if err != nil {
		return nil, err
	}

	if err := a.printer(d.out).Table(v); err != nil {
		return nil, err
	}

	path := filepath.Join(d.dir, "report.html")
	err = keep.Replace(path, 0o644, func(w io.Writer) error { return report.HTML(w, v, a.drawn(), nil, made()) })
	if err != nil {
		return nil, fmt.Errorf("write report: %w", err)
	}

	fmt.Fprintf(d.out, "\nreport: %s\n", path)
	return v, nil
}

// judge holds the verdict against what was done to the job. Undecided is neither right nor wrong.
func (d *demo) judge(v *verdict.Verdict) error {
	var named []string
	for _, n := range v.Nodes {
		if verdict.Blamed(n.State) {
			named = append(named, fmt.Sprintf("%s (%s, ranks %v)", n.Node, n.Cause, n.Ranks))
		}
	}

	if d.fault == dataparallel.NoFault {
		if len(named) > 0 || len(v.Links) > 0 {
			return fmt.Errorf("demo: wrong verdict: nobody was slowed, named: %v, links: %d; files in %s", named, len(v.Links), d.dir)
		}

		if !v.Decided {
			fmt.Fprintln(d.out, "undecided: nobody was slowed, and nobody is named; where other work on this machine disturbs the workers, run it again without")
			return exitWith(v.Exit(defaultMinImpact))
		}

		fmt.Fprintln(d.out, "right: nobody was slowed and nobody is named")
		return nil
	}

	want := d.want()
	if !slices.Equal(named, []string{want}) {
		return fmt.Errorf("demo: wrong verdict: slowed was %s, named: %v; files in %s", want, named, d.dir)
	}

	if d.fault == dataparallel.LinkFault {
		fmt.Fprintf(d.out, "right: the wires of %s were limited to %d MB/s\n", demoNode(d.slowRank), demoLinkRate/1_000_000)
		return nil
	}

	fmt.Fprintf(d.out, "right: rank %d on %s was given extra %s work\n", d.slowRank, demoNode(d.slowRank), d.fault)
	return nil
}

// want is the culprit as judge writes it.
func (d *demo) want() string {
	if d.fault == dataparallel.LinkFault {
		first := d.slowRank / demoRanksPerNode * demoRanksPerNode
		return fmt.Sprintf("%s (%s, ranks [%d %d])", demoNode(first), verdict.Communication, first, first+1)
	}

	return fmt.Sprintf("%s (%s, ranks [%d])", demoNode(d.slowRank), d.fault, d.slowRank)
}

// demoWorkerCommand is one worker: hidden, started by demo only.
func demoWorkerCommand() *cobra.Command {
	var steps int
	var addresses, dir, fault string
	var experts bool
	c := &cobra.Command{
		Use: "demo-worker", Short: "one worker of the demo", Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			listener, err := net.FileListener(os.NewFile(3, "listener"))
			if err != nil {
				return errors.New("demo-worker: no listener at descriptor 3: it is started by laggard demo only")
			}
			defer listener.Close()
			return dataparallel.Run(dataparallel.Config{
				Steps: steps, Listener: listener, Addresses: strings.Split(addresses, ","), Dir: dir, Fault: fault, Experts: experts,
				Done: func(step int) { fmt.Println(step + 1) },
			})
		},
	}
	f := c.Flags()
	f.IntVar(&steps, "steps", 0, "training steps")
	f.StringVar(&addresses, "addresses", "", "of every rank's listener")
	f.StringVar(&dir, "dir", "", "where checkpoints go")
	f.StringVar(&fault, "fault", "", "what slows this worker")
	f.BoolVar(&experts, "experts", false, "exchange tokens with the neighbour on another node")
	return c
}
