// Package dataparallel is a small data-parallel training job in Go: the workers
// of `laggard demo`, and an example of the Go recorder in a trainer.
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
	"time"

	"laggard/collector/recorder"
	"laggard/schemas/record"
)

// Faults that a worker can be given.
const (
	NoFault         = ""
	ComputeFault    = "compute"
	DataLoaderFault = "dataloader"
	CheckpointFault = "checkpoint"
)

// Config is one worker's part of the job. Rank, world size, node and job come
// from the environment, as a launcher sets it.
type Config struct {
	Steps     int
	Listener  net.Listener // the previous rank connects here
	Addresses []string     // of every rank's listener
	Dir       string       // where checkpoints go
	Fault     string       // one of the Fault constants
	Done      func(step int)
}

// Shares of a step, in slices of work.
const (
	slices          = 24     // of forward and of backward work
	sliceIterations = 30_000 // about 0.1 ms of arithmetic
	slicePause      = 2 * time.Millisecond
	loadPause       = 3 * time.Millisecond
	parameters      = 1 << 16
	buckets         = 4  // gradient all-reduces a step
	checkpointEvery = 10 // steps
	checkpointBytes = 1 << 20
	joinTimeout     = 30 * time.Second
)

// Run trains: it returns when all steps are done or a peer is gone.
func Run(c Config) error {
	meta := recorder.Environment(os.Getenv)
	meta.Groups = []record.Group{dataParallelGroup(meta)}
	rec, err := recorder.Open(recorder.Options{Meta: meta})
	if err != nil {
		return fmt.Errorf("open recorder: %w", err)
	}
	defer rec.Close()
	ring, err := joinRing(meta.Rank, meta.WorldSize, c.Listener, c.Addresses, joinTimeout)
	if err != nil {
		return err
	}
	defer ring.close()
	w := &worker{Config: c, ring: ring, gradients: make([]float32, parameters), thread: rec.Thread()}
	defer w.thread.Close()
	w.checkpointPath = filepath.Join(c.Dir, fmt.Sprintf("rank-%d.ckpt", meta.Rank))
	w.reduction = recorder.Op(rec.Intern("allreduce"), rec.Intern(groupName), parameters/buckets, record.DtypeCode("fp32"))
	w.saving = recorder.Attr{Text: rec.Intern(w.checkpointPath), Value: checkpointBytes}
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

func dataParallelGroup(m record.Meta) record.Group {
	g := record.Group{Dim: "dp", Name: groupName, Index: m.Rank, Size: m.WorldSize}
	for r := range m.WorldSize {
		g.Ranks = append(g.Ranks, r)
	}
	return g
}

type worker struct {
	Config
	ring              *ring
	thread            *recorder.Thread
	reduction, saving recorder.Attr
	checkpointPath    string
	gradients         []float32
	x                 float64
}

func (w *worker) step(step int) error {
	whole := w.thread.Step(int64(step), 0)
	defer whole.End()

	load := w.thread.Begin(record.DataLoader, recorder.Attr{})
	w.load()
	load.End()

	n := slices
	if w.Fault == ComputeFault {
		n += slices / 2
	}
	forward := w.thread.Begin(record.FP, recorder.Attr{})
	w.compute(n)
	forward.End()
	w.compute(slices) // backward: a part of the step that no kind covers

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
	time.Sleep(loadPause)
	if w.Fault == DataLoaderFault {
		w.compute(slices / 2)
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

func (w *worker) reduce() error {
	part := len(w.gradients) / buckets
	for b := range buckets {
		reduction := w.thread.Begin(record.Communication, w.reduction)
		start := time.Now()
		err := w.ring.allReduce(w.gradients[b*part : (b+1)*part])
		reduction.EndExposed(int64(time.Since(start)))
		if err != nil {
			return err
		}
	}
	return nil
}

// checkpoint writes the rank's shard; a faulty disk takes far longer.
func (w *worker) checkpoint() error {
	save := w.thread.Begin(record.SaveCheckpoint, w.saving)
	defer save.End()
	if err := os.WriteFile(w.checkpointPath, make([]byte, checkpointBytes), 0o644); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	w.compute(slices / 4)
	if w.Fault == CheckpointFault {
		w.compute(2 * slices)
	}
	return nil
}
