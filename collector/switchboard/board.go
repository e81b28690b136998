// Package switchboard is the switch of a node's jobs, and serves it over gRPC: the
// service TrainingDataTrace, as ClusterD's clients call it, and the state behind it.
//
// Invariant: a state that was acknowledged with 200 has been handed to the
// recorders; a refused one changed nothing. A new subscriber gets the last value
// at once, then every change in order, so a client that was away misses nothing.
//
// Caveats: who breaks a rule is answered in-band (300), so that he sees the rule. A job
// that is not known (yet), and a fault, are gRPC errors, NotFound and Internal: TaskD's
// manager and ClusterD's clients try again after those, and after nothing else.
// Any number of clients may subscribe to a job; TaskD's own server knows one.
package switchboard

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/tracepb"
)

// errNoJob is the answer to who names a job that is not here.
var errNoJob = errors.New("no such job here (yet): its first recorder makes it known")

// Options say whose recorders a board switches.
type Options struct {
	RunDir string // where the recorders make their rings
	Node   string // of the recorders there
	// Job is the job that the agent was started for, as callers name it; "" none.
	Job string
	// Seen lists the jobs whose recorders were seen here, as these call them: a job stays
	// known when they are gone. nil lists none.
	Seen func() []string
	// Unnamed returns the job of recorders that name none, "" while there was none; nil: no
	// recorder is without a name.
	Unnamed func() string
}

// Board holds the switch of every job. Who spoke last wins: a switch file, a caller,
// another agent, or TaskD's manager, which writes the recorders' words itself. So a word
// goes to the recorders once, when it is spoken, and to a recorder that comes later once,
// by the drain (Wanted). Its methods may be called from any goroutine.
type Board struct {
	tracepb.UnimplementedTrainingDataTraceServer
	o   Options
	uid atomic.Pointer[string] // what recorders call the job of Options.Job, nil not known yet

	mu   sync.Mutex      // also held while recorders are told, so that words reach them in order
	jobs map[string]*job // guarded by mu: by the name that callers use; "" is every job

	changed chan struct{} // guarded by mu: closed when what subscribers of a job are told changes
}

// job is what was said to one job.
type job struct {
	wanted *trace.State // the last word to this job alone, nil none since the last one to all
	by     string       // the Caller that spoke it, "" a person, a file or another server

	public *trace.State // what subscribers are told; nil: what the recorders are told

	followers map[string]followers // by node: what other agents told
}

// New returns a board on which nothing was switched yet.
func New(o Options) *Board {
	o.Job = withoutNamespace(o.Job)
	if o.Seen == nil {
		o.Seen = func() []string { return nil }
	}

	if o.Unnamed == nil {
		o.Unnamed = func() string { return "" }
	}

	return &Board{o: o, jobs: map[string]*job{}, changed: make(chan struct{})}
}

// uids are what Kubernetes gives a job, and MINDX_TASK_ID holds.
var uids = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Wanted returns what a recorder that comes now is to be told, as bits of the switch
// word, by the job that it names; false: nobody spoke, it goes by its own LAGGARD_TRACE.
// The first uid that Wanted sees is that of Options.Job's job: the pod's.
func (b *Board) Wanted(job string) (bits uint32, ok bool) {
	if b.uid.Load() == nil && uids.MatchString(job) {
		uid := job
		b.uid.CompareAndSwap(nil, &uid)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.wantedLocked(b.ofRecorder(job))
	return s.Bits(), ok
}

// Follow takes a word of a source that spoke before the agent began and goes on speaking,
// a switch file or another agent: a word to one job, to every job when that is "". What
// callers said before no longer holds. The source's first word is not news: it goes to
// the recorders that have not had it from an agent, by the drain.
func (b *Board) Follow(name string, s trace.State) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, news := b.wantedLocked(name)
	b.keepLocked(name, s)
	if news {
		err = b.tellLocked(name, s)
	}

	for own, j := range b.jobs {
		if name == "" || own == name {
			j.public, j.by = nil, ""
		}
	}

	b.wakeLocked()
	return err
}

// set switches a job for the Caller by. The error is gRPC's.
func (b *Board) set(name string, s trace.State, by string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, known := b.toldLocked(name, b.recorders(name))
	if !known {
		return status.Errorf(codes.NotFound, "switch job %s: %v", name, errNoJob)
	}

	j := b.jobLocked(name)
	if by != "" && j.public == nil {
		j.public = &old // what subscribers are told must not follow what is switched here alone
	}

	j.by = by
	b.keepLocked(name, s)
	if err := b.tellLocked(name, s); err != nil {
		return status.Errorf(codes.Internal, "switch job %s: %v", name, err)
	}

	if by == "" && (j.public == nil || *j.public != s) {
		j.public = &s
		b.wakeLocked()
	}

	return nil
}

// keepLocked makes s the last word to a job, to every job when that is "".
func (b *Board) keepLocked(name string, s trace.State) {
	if name == "" {
		for _, j := range b.jobs {
			j.wanted = nil
		}
	}

	b.jobLocked(name).wanted = &s
}

// wantedLocked returns the last word to a job, be it to every job; false: there was none.
func (b *Board) wantedLocked(name string) (s trace.State, ok bool) {
	for _, n := range []string{name, ""} {
		if j := b.jobs[n]; j != nil && j.wanted != nil {
			return *j.wanted, true
		}
	}

	return s, false
}

// tellLocked tells the recorders of a job, of every job when that is "".
func (b *Board) tellLocked(name string, s trace.State) error {
	if err := trace.Apply(b.o.RunDir, s, func(own string) bool { return name == "" || b.ofRecorder(own) == name }); err != nil {
		return fmt.Errorf("switch to %s: %w", s, err)
	}

	return nil
}

// jobLocked returns the job of a name, made when nothing was said to it yet. A name that
// a caller gives is looked up first: else strangers could fill the memory.
func (b *Board) jobLocked(name string) *job {
	j := b.jobs[name]
	if j == nil {
		j = &job{}
		b.jobs[name] = j
	}

	return j
}

// wakeLocked lets those go on who wait for the next value, of any job: closing a channel reaches
// all of them, and who comes later waits for the new one.
func (b *Board) wakeLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// here returns what a job's recorders are told here, and by which Caller, "" when
// somebody else spoke last; false: there is no such job.
func (b *Board) here(name string) (s trace.State, by string, ok bool) {
	recorders := b.recorders(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok = b.toldLocked(name, recorders)
	if j := b.jobs[name]; j != nil && j.by != "" && *j.wanted == s {
		by = j.by
	}

	return s, by, ok
}

// last returns what a job's subscribers are told, and what is closed when it, or another job's,
// changes; false: there is no such job.
func (b *Board) last(name string) (s trace.State, changed <-chan struct{}, ok bool) {
	b.mu.Lock()
	changed = b.changed
	b.mu.Unlock()
	s, _, ok = b.here(name) // after the channel was taken: a change in between closes it
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[name]; j != nil && j.public != nil {
		s = *j.public
	}

	return s, changed, ok
}

// toldLocked returns what the recorders of a job are told, as the rings of those that are
// here say; where there is none yet, what they will be told. False: there is no such job.
func (b *Board) toldLocked(name string, recorders []trace.Recorder) (s trace.State, ok bool) {
	switch word, spoken := b.wantedLocked(name); {
	case name == "":
		return s, false
	case len(recorders) > 0:
		return recorders[0].Wanted, true
	case name != b.o.Job && !slices.ContainsFunc(b.o.Seen(), func(own string) bool { return b.named(own) == name }):
		return s, false
	case spoken:
		return word, true
	}

	return trace.On, true
}

// recorders lists the recorders of a job here; a folder that can't be read is the
// drain's to report.
func (b *Board) recorders(name string) []trace.Recorder {
	all, _ := trace.Recorders(b.o.RunDir)
	return slices.DeleteFunc(all, func(r trace.Recorder) bool { return b.ofRecorder(r.Job) != name })
}

// named returns the name that the switch uses for a job: Options.Job's, where that is it.
// Recorders call theirs by a uid (MINDX_TASK_ID), or default_task_id_<seconds> where
// nothing names it.
func (b *Board) named(job string) string {
	uid := b.uid.Load()
	if b.o.Job != "" && (uid != nil && job == *uid || strings.HasPrefix(job, "default_task_id_")) {
		return b.o.Job
	}

	return job
}

// ofRecorder is named for what a recorder calls its job, "" when it has no name for it.
func (b *Board) ofRecorder(job string) string {
	if job == "" {
		job = b.o.Unnamed()
	}

	return b.named(job)
}

// ofCaller is named for what a caller calls a job.
func (b *Board) ofCaller(job string) string { return b.named(withoutNamespace(job)) }

// withoutNamespace returns the job of <namespace>/<job>.
func withoutNamespace(job string) string { return job[strings.IndexByte(job, '/')+1:] }
