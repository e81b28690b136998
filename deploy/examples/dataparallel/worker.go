// Package dataparallel is a small data-parallel training job in Go: the workers
// of `laggard demo`, of the recoveries that recovery_test.go plays through, and
// an example of the Go recorder in a trainer.
//
// Each worker is a process. A step loads a batch, runs forward and backward,
// all-reduces gradients over a ring of loopback TCP connections, and now and then
// saves a checkpoint. Work is counted in slices of a fixed number of
// iterations, each followed by a pause that stands for the accelerator's share,
// so that a worker takes well under a core and contention for the machine's cores
// does not become the straggler.
//
// Invariant: a fault is real extra work (more slices, a bigger file, a longer
// load), never a painted number. Caveat: the model learns nothing.
package dataparallel

import (
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/schemas/record"
)

// Faults that a worker can be given.
const (
	NoFault         = ""
	ComputeFault    = "compute"
	DataLoaderFault = "dataloader"
	CheckpointFault = "checkpoint"
	LinkFault       = "link" // no worker's: the wires of a node, see Link
)

// Config is one worker's part of the job. Rank, world size, node and job come
// from the environment, as a launcher sets it.
type Config struct {
	Steps     int
	Listener  net.Listener // the previous rank connects here
	Addresses []string     // of every rank's listener
	Dir       string       // where checkpoints go
	Fault     string       // one of the Fault constants
	// Experts makes each step also trade tokens with the neighbour on another node, as
	// expert parallelism does.
	Experts bool
	// slices of work in forward, and as many in backward; 0 is defaultSlices.
	slices int
	Done   func(step int)
}

// defaultSlices make a step of about 0.1 s.
const defaultSlices = 24

// Shares of a step. A slice is a twentieth arithmetic and else pause, so that a worker takes
// a twentieth of a core, see the package's comment.
const (
	sliceIterations = 30_000 // about 0.1 ms of arithmetic
	slicePause      = 2 * time.Millisecond
	loadPause       = 3 * time.Millisecond // of a batch
	parameters      = 1 << 16              // gradients of a step, shared out over the buckets
	tokens          = 1 << 16              // that experts trade
	buckets         = 4                    // gradient all-reduces a step
	checkpointEvery = 10                   // steps
	checkpointBytes = 1 << 20
	joinTimeout     = 30 * time.Second
)

// Run trains: it returns when all steps are done or a peer is gone.
func Run(c Config) error {
	w, err := open(c)
	if err != nil {
		return err
	}
	defer w.close()
	var everybody []int
	for rank := range w.meta.WorldSize {
		everybody = append(everybody, rank)
	}

	if err := w.join(groupName, everybody, c.Addresses); err != nil {
		return err
	}

	for step := range c.Steps {
		if err := w.step(step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}

		if c.Done != nil {
			c.Done(step)
		}
	}

	return nil
}

// groupName is the communicator of all ranks.
const groupName = "dp0"

// worker is one rank. Its methods are for one goroutine, as a trainer's main loop.
type worker struct {
	Config
	meta      record.Meta
	recorder  *recorder.Recorder
	thread    *recorder.Thread
	ring      *ring // nil before join
	reduction recorder.Attr
	trading   recorder.Attr
	saving    recorder.Attr

	checkpointPath string
	gradients      []float32
	tokens         []float32 // empty without Experts
	ranges         uint64    // that were recorded
	x              float64
}

// open begins to record. The worker must join before its first step.
func open(c Config) (*worker, error) {
	if c.slices == 0 {
		c.slices = defaultSlices
	}

	w := &worker{Config: c, meta: recorder.Environment(os.Getenv), gradients: make([]float32, parameters)}
	var err error
	if w.recorder, err = recorder.Open(recorder.Options{Meta: w.meta}); err != nil {
		return nil, fmt.Errorf("open recorder: %w", err)
	}

	w.thread = w.recorder.Thread()
	w.checkpointPath = filepath.Join(c.Dir, fmt.Sprintf("rank-%d.ckpt", w.meta.Rank))
	w.saving = recorder.Attr{Text: w.recorder.Intern(w.checkpointPath), Value: checkpointBytes}
	return w, nil
}

// close ends what open began, in the reverse order.
func (w *worker) close() {
	if w.ring != nil {
		w.ring.close()
	}

	w.thread.Close()
	w.recorder.Close()
}

// join makes the ring of the ranks with these listeners, in this order, anew when there was one, and says in
// the worker's identity who they are. name is that of their communicator.
func (w *worker) join(name string, ranks []int, addresses []string) error {
	position := slices.Index(ranks, w.meta.Rank)
	if position < 0 || len(addresses) != len(ranks) {
		return fmt.Errorf("join ring: rank %d is not one of the %d members with an address each", w.meta.Rank, len(ranks))
	}

	if w.ring != nil {
		w.ring.close()
	}

	w.meta.WorldSize = len(ranks)
	w.meta.Groups = []record.Group{{Dim: "dp", Name: name, Index: position, Size: len(ranks), Ranks: ranks}}
	if w.Experts && len(ranks)%2 == 0 {
		w.meta.Groups = append(w.meta.Groups, w.pair(ranks, position))
	}

	w.recorder.SetMeta(w.meta)
	w.reduction = recorder.Op(w.recorder.Intern("allreduce"), w.recorder.Intern(name), parameters/buckets, record.DtypeCode("fp32"))
	var err error
	w.ring, err = joinRing(position, len(ranks), w.Listener, addresses, joinTimeout)
	return err
}

// pair returns the group of an odd rank and the next one, an even rank and the
// one before: with two ranks a node they are on different nodes.
func (w *worker) pair(ranks []int, position int) record.Group {
	first, index := position, 0
	if position%2 == 0 {
		first, index = (position+len(ranks)-1)%len(ranks), 1
	}

	g := record.Group{Dim: "ep", Name: fmt.Sprintf("ep%d", first/2), Index: index, Size: 2, Ranks: []int{ranks[first], ranks[(first+1)%len(ranks)]}}
	w.tokens = make([]float32, tokens)
	w.trading = recorder.Op(w.recorder.Intern("alltoall"), w.recorder.Intern(g.Name), tokens, record.DtypeCode("fp32"))
	return g
}

// end records a range and counts it.
func (w *worker) end(r *recorder.Range) {
	r.End()
	w.ranges++
}

// step trains one step, in the order of a real one: load, forward, backward, reduce, save.
func (w *worker) step(step int) error {
	whole := w.thread.Step(int64(step), 0)
	defer w.end(&whole)

	w.load()
	n := w.slices
	if w.Fault == ComputeFault {
		n += w.slices / 2
	}

	forward := w.thread.Begin(record.FP, recorder.Attr{})
	w.compute(n)
	w.end(&forward)
	if len(w.tokens) > 0 {
		if err := w.communicate(w.trading, func() error { return w.ring.swap(w.tokens) }); err != nil {
			return err
		}
	}

	w.compute(w.slices) // backward: a part of the step that no kind covers

	if err := w.reduce(); err != nil {
		return err
	}

	if step%checkpointEvery == checkpointEvery-1 {
		return w.checkpoint()
	}

	return nil
}

// load reads a batch; a faulty loader decodes for a good part of a step.
func (w *worker) load() {
	load := w.thread.Begin(record.DataLoader, recorder.Attr{})
	defer w.end(&load)
	time.Sleep(loadPause)
	if w.Fault == DataLoaderFault {
		w.compute(w.slices / 2)
	}
}

// compute does n slices of arithmetic.
func (w *worker) compute(n int) {
	for range n {
		x := w.x
		for i := range sliceIterations {
			x += math.Sqrt(float64(i)) * 0.5
		}

		w.x = x
		time.Sleep(slicePause)
	}
}

// reduce sums the gradients over all ranks, a bucket at a time, as DDP does.
func (w *worker) reduce() error {
	part := len(w.gradients) / buckets
	for b := range buckets {
		if err := w.communicate(w.reduction, func() error { return w.ring.allReduce(w.gradients[b*part : (b+1)*part]) }); err != nil {
			return err
		}
	}

	return nil
}

// communicate records an operation that the worker waits for.
func (w *worker) communicate(a recorder.Attr, operation func() error) error {
	r := w.thread.Begin(record.Communication, a)
	start := time.Now()
	err := operation()
	r.EndExposed(int64(time.Since(start)))
	w.ranges++
	return err
}

// checkpoint writes the rank's shard; a faulty disk takes far longer.
func (w *worker) checkpoint() error {
	save := w.thread.Begin(record.SaveCheckpoint, w.saving)
	defer w.end(&save)
	if err := os.WriteFile(w.checkpointPath, make([]byte, checkpointBytes), 0o644); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}

	w.compute(w.slices / 4)
	if w.Fault == CheckpointFault {
		w.compute(2 * w.slices)
	}

	return nil
}
