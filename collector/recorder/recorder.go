// Package recorder writes a Go program's ranges into the rings that the agent
// drains.
//
//	rec, err := recorder.Open(recorder.Options{Meta: record.Meta{Job: "j1", Rank: 3}})
//	th := rec.Thread() // one for each goroutine that records
//	step := th.Step(n, tokens)
//	fp := th.Begin(record.FP, recorder.Attr{})
//	…
//	fp.End()
//	step.End()
//
// Invariant: it never blocks and never stops the program. Between Begin and End
// there is no system call (the clock is the processor's counter or the vDSO's) and
// no allocation; what End has returned from survives a SIGKILL. Where no ring can be had recording is off,
// one line says why, and what was lost is counted.
//
// Caveats: files appear at the first Begin, never before, so a launcher that
// only imports the package is not a rank. The incarnation of a process names its
// folder, so a process has one Recorder a run directory in its life. A nil
// *Recorder or *Thread records nothing.
package recorder

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/record"
)

// DefaultRunDir is where rings are made when neither Options nor LAGGARD_RUN
// says so: a tmpfs on every Linux.
const DefaultRunDir = "/dev/shm/laggard"

// look is how often the switch is looked at, and the clock set right: often enough for a
// person who waits for the switch.
const look = 50 * time.Millisecond

// Writer is what this recorder calls itself in record.Meta.
const Writer = "go/1"

// Options says where and for whom to record.
type Options struct {
	// RunDir is the run directory; "" means LAGGARD_RUN, else DefaultRunDir.
	RunDir string
	// Meta is the rank's identity. What belongs to the process (incarnation, pid,
	// start, boot id, format, writer) is filled in; empty node, pod and job are
	// filled in by the agent.
	Meta record.Meta
	// Trace is the switch at start, in the grammar of package trace; "" means
	// LAGGARD_TRACE, else all on.
	Trace string
	// Logger gets the one line that says why recording is off. nil: standard error.
	Logger *slog.Logger
}

// Environment returns the identity that a launcher's environment tells: RANK
// (only together with LOCAL_RANK), LOCAL_RANK, WORLD_SIZE, MINDX_TASK_ID or
// LAGGARD_JOB, NODE_NAME, POD_NAME.
func Environment(getenv func(string) string) record.Meta {
	number := func(name string, absent int) int {
		v, err := strconv.Atoi(getenv(name))
		if err != nil || v < 0 {
			return absent
		}

		return v
	}
	m := record.Meta{Job: cmp.Or(getenv("MINDX_TASK_ID"), getenv("LAGGARD_JOB")), WorldSize: 1, Node: getenv("NODE_NAME"), Pod: getenv("POD_NAME")}
	if getenv("LOCAL_RANK") != "" {
		m.Rank, m.LocalRank = number("RANK", 0), number("LOCAL_RANK", 0)
		m.WorldSize = number("WORLD_SIZE", 1)
	}

	return m
}

// Recorder is the process's recorder. Its methods may be called from any
// goroutine.
type Recorder struct {
	o     Options // o.Meta: guarded by mu
	clock clock
	step  atomic.Int64
	texts *ring.Strings
	lost  [record.KindCount]atomic.Uint64
	word  atomic.Uint32 // what is on, polled by every Begin
	off   atomic.Bool   // closed, or failed: for good

	mu       sync.Mutex // guards what follows
	process  *ring.Process
	followed uint32      // switch word that is acted on; before the folder is made, the one at start
	timer    *time.Timer // the next look at the switch
	reason   error
}

// Open prepares recording. It touches no file. An error means that the options
// are wrong; the Recorder beside it then records with what could be understood.
func Open(o Options) (*Recorder, error) {
	o.RunDir = cmp.Or(o.RunDir, os.Getenv("LAGGARD_RUN"), DefaultRunDir)
	o.Trace = cmp.Or(o.Trace, os.Getenv("LAGGARD_TRACE"))
	o.Logger = cmp.Or(o.Logger, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	state, err := trace.Parse(o.Trace)
	if o.Meta.Rank < 0 || o.Meta.WorldSize < 0 {
		err = errors.Join(err, fmt.Errorf("open recorder: rank %d of %d", o.Meta.Rank, o.Meta.WorldSize))
		o.Meta.Rank, o.Meta.WorldSize = max(o.Meta.Rank, 0), max(o.Meta.WorldSize, 0)
	}

	r := &Recorder{o: o, clock: newClock(), texts: ring.NewStrings(), followed: state.Bits()}
	r.step.Store(record.NoStep)
	r.word.Store(unmadeBit)
	return r, err
}

// Now returns the recorder's clock: ns since the Unix epoch when it was opened,
// and the monotonic clock from there.
func (r *Recorder) Now() int64 { return r.clock.now() }

// ID is a string's number in the process's strings area, 0 the empty string.
type ID uint16

// Intern returns the id of s. Do it once, outside the hot path. When the area
// is full it returns 0, which is counted.
func (r *Recorder) Intern(s string) ID {
	if r == nil {
		return 0
	}

	return ID(r.texts.Intern(s))
}

// SetMeta publishes a new identity, for instance when the parallel groups are
// known.
func (r *Recorder) SetMeta(m record.Meta) {
	if r == nil {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.o.Meta = m
	if r.process != nil {
		r.publishLocked()
	}
}

// Switch returns what is on now. Before the first range it is the state at start.
func (r *Recorder) Switch() trace.State {
	if r == nil || r.off.Load() {
		return trace.State{}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	return trace.FromBits(r.followed)
}

// Lost returns the ranges by kind that found no ring. Those that found a full
// one are counted in the ring.
func (r *Recorder) Lost() (lost [record.KindCount]uint64) {
	if r != nil {
		for k := range lost {
			lost[k] = r.lost[k].Load()
		}
	}

	return lost
}

// Err returns why recording is off, nil while it works.
func (r *Recorder) Err() error {
	if r == nil {
		return nil
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reason
}

// Close says that the process records no more. Ranges that are still open stay
// so for the agent.
func (r *Recorder) Close() {
	if r == nil {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.off.Swap(true) {
		return
	}

	r.word.Store(0)
	if r.process != nil {
		r.timer.Stop()
		r.process.Close()
	}
}

// Thread returns a recorder for one goroutine. It may move between OS threads;
// what it records carries none.
func (r *Recorder) Thread() *Thread {
	if r == nil {
		return nil
	}

	return &Thread{r: r, word: &r.word}
}

// Bits of Recorder.word beside those of the switch.
const (
	failedBit  = uint32(1) << 3 // what begins is counted as lost
	unmadeBit  = uint32(1) << 4 // the folder is not made yet
	specialBit = failedBit | unmadeBit
)

// begin handles a range of kind k while the word is special: it makes the folder,
// or counts the range as lost. It returns the word.
func (r *Recorder) begin(k record.Kind) uint32 {
	if w := r.word.Load(); w&failedBit != 0 {
		r.lose(k)
		return w
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil && !r.off.Load() {
		if err := r.createLocked(); err != nil {
			r.failLocked(err)
			r.lost[k.Known()].Add(1)
			return failedBit
		}

		r.word.Store(r.followed)
		r.timer = time.AfterFunc(look, r.look)
	}

	return r.word.Load()
}

// look follows the switch. The word that the agent writes stands in a file that
// somebody may truncate, so it is read here, guarded, and not by every Begin.
func (r *Recorder) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.off.Load() {
		return
	}

	r.clock.adjust()
	w, err := r.process.Wanted()
	if err != nil {
		r.failLocked(err)
		return
	}

	if w != r.followed {
		r.followed = w
		r.word.Store(w & ring.AllOn)
		r.process.Follow(w, r.Now())
	}

	r.timer.Reset(look)
}

// createLocked makes the process's folder. After an error there is none.
func (r *Recorder) createLocked() error {
	identity, err := ring.Self()
	if err != nil {
		return err
	}

	if r.process, err = ring.Create(r.o.RunDir, identity, r.texts, r.followed); err != nil {
		return err
	}

	r.clock.start(os.Getenv("LAGGARD_CLOCK"))
	r.publishLocked()
	return nil
}

// publishLocked interns the identity and says which string it is. Where the strings area is
// full the one before stays.
func (r *Recorder) publishLocked() {
	m, id := r.o.Meta, r.process.Identity
	m.Format, m.Segment, m.Writer = record.Format, "", Writer
	m.Incarnation, m.PID, m.StartedNs, m.BootID = id.Incarnation, id.PID, id.StartedNs, id.BootID
	b, err := json.Marshal(m)
	if err != nil {
		panic("BUG: identity is not JSON: " + err.Error()) // numbers and strings only
	}

	if text := r.texts.Intern(string(b)); text != 0 {
		r.process.SetIdentity(text)
	}
}

// failLocked turns recording off for good and says why, once.
func (r *Recorder) failLocked(err error) {
	if r.off.Swap(true) {
		return
	}

	r.word.Store(failedBit)
	r.reason = err
	r.o.Logger.Warn("laggard records nothing in this process; training goes on", "cause", err)
}

// fail is failLocked for a ring whose memory went away under us.
func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failLocked(err)
}

// lose counts a range that has no ring.
func (r *Recorder) lose(k record.Kind) {
	k = k.Known()
	r.lost[k].Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil && !r.off.Load() {
		r.process.Lose(k, 1)
	}
}
