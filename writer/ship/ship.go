package ship

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Defaults of Options.
const (
	// DefaultMemory bounds the rows that are put and not yet acknowledged.
	DefaultMemory = 64 << 20
	// DefaultBatchRows is large enough that a part (some sixty files) costs the server
	// little beside its rows, and small enough that a retry is cheap. Memory is
	// usually what cuts first.
	DefaultBatchRows = 256 << 10
	// defaultFlush is the longest time a row waits for others.
	defaultFlush = time.Second
	// defaultCopies: a fetch takes milliseconds, and a replica that is started again is back
	// within it.
	defaultCopies = time.Minute
	// maxBlockRows is the most that every server stores as one part.
	maxBlockRows = 1_000_000
	// restFrom is from how long a pause on no connection is held: to open one takes
	// milliseconds.
	restFrom = 2 * time.Second
	// The account of batches is written every ledgerEvery, and at most with every
	// ledgerFlushes-th flush: it is for people and audits, nobody waits for it, and each
	// insert of a fleet costs its store the same.
	ledgerEvery   = 10 * time.Second
	ledgerFlushes = 4
)

// Options configure a Shipper. Zero values mean the defaults.
type Options struct {
	Memory     int64         // bytes of rows between Put and acknowledgement
	BatchRows  int           // most rows of one insert, at most 1,000,000
	BatchBytes int64         // a round of inserts begins when so many bytes wait; Memory/6: they are held twice more on their way
	Flush      time.Duration // or when the oldest row has waited so long
	// DeadLetters is the file for rows that the store refuses; "" keeps them in
	// memory only (they are still counted, and logged).
	DeadLetters string
	// GiveUp makes Run return the error when the store has failed for so long, or
	// refuses; 0 retries for ever, which is what an agent does.
	GiveUp time.Duration
	// Copies is how long rows that are stored wait for a second copy before they are
	// acknowledged; defaultCopies.
	Copies time.Duration
	Logger *slog.Logger // nil is silent
	// Jitter returns a number in [0, 1); nil is math/rand.
	Jitter func() float64
}

// withDefaults fills in what is zero, and what is out of range.
func (o Options) withDefaults() Options {
	o.Memory = cmp.Or(max(o.Memory, 0), DefaultMemory)

	if o.BatchRows <= 0 || o.BatchRows > maxBlockRows {
		o.BatchRows = DefaultBatchRows
	}

	o.BatchBytes = cmp.Or(max(o.BatchBytes, 0), o.Memory/6)
	o.Flush = cmp.Or(max(o.Flush, 0), defaultFlush)
	o.Copies = cmp.Or(max(o.Copies, 0), defaultCopies)

	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}

	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))

	return o
}

// Shipper takes rows of many streams and stores them. Its methods may be called
// from any goroutine; Run does the work.
type Shipper struct {
	sink   Sink
	o      Options
	memory *semaphore.Weighted
	dead   *deadLetters
	pool   pool

	countMu sync.Mutex
	stats   Stats         // guarded by countMu
	copied  chan struct{} // guarded by countMu: closed when no round waits for a second copy any more

	mu      sync.Mutex
	waiting []part    // guarded by mu: what the next round takes
	rows    int       // guarded by mu: rows in waiting
	bytes   int64     // guarded by mu: bytes in waiting
	since   time.Time // guarded by mu: when the oldest part of waiting came
	flushes []chan error
	next    time.Time // guarded by mu: when the next flush is due; see phaseLocked
	phase   time.Duration
	kick    chan struct{}

	// Owned by Run's goroutine.
	accounts   []row.Ledger
	accountsAt time.Time
	failing    failing
	buffers    buffers
	uncopied   []storedRound // oldest first; AwaitCopies goes by their number in stats
	single     any           // mark of the last round that went on with one copy; nil none
	asked      time.Time     // when the store was last asked for copies
}

// part is what one Put brought.
type part struct {
	stream *Stream
	rows   *row.Rows
	bytes  int64 // of the rows
	held   int64 // of the memory
	mark   any
}

// New returns a shipper into sink. Run starts it.
func New(sink Sink, o Options) (*Shipper, error) {
	o = o.withDefaults()
	dead, err := openDeadLetters(o.DeadLetters)
	if err != nil {
		return nil, err
	}

	s := &Shipper{
		sink: sink, o: o, memory: semaphore.NewWeighted(o.Memory), dead: dead, stats: Stats{Tables: map[string]TableStats{}}, copied: make(chan struct{}), kick: make(chan struct{}, 1),
	}
	for _, table := range clickhouse.Tables { // so that metrics have all from the start
		s.stats.Tables[table] = TableStats{}
	}

	s.phase = time.Duration(o.Jitter() * float64(o.Flush))
	return s, nil
}

// Put hands rows of a stream over, in the stream's order; rows belong to the
// shipper afterwards. mark is what Acked returns once they (and all before
// them) are stored. Put blocks while the memory is used up: that is the
// back-pressure. When ctx ends first, nothing was taken.
func (s *Shipper) Put(ctx context.Context, st *Stream, rows *row.Rows, mark any) error {
	p := part{stream: st, rows: rows, bytes: max(size(rows), 64), mark: mark}
	n := min(max(p.bytes, room(rows)+int64(rows.Raws.Bytes)), s.o.Memory) // a bundle takes what it has room for
	p.held = n
	if !s.memory.TryAcquire(n) {
		s.wake() // what waits must go out now, or it would never make room
		if err := s.memory.Acquire(ctx, n); err != nil {
			return fmt.Errorf("put rows of %s: %w", st.Name, err)
		}
	}

	st.mu.Lock()
	st.puts++
	st.mu.Unlock()
	s.mu.Lock()
	first := len(s.waiting) == 0
	if first {
		s.since = time.Now()
	}

	s.waiting = append(s.waiting, p)
	s.rows += rows.Len()
	s.bytes += p.bytes
	full := s.fullLocked()
	s.mu.Unlock()
	if first || full {
		s.wake()
	}

	return nil
}

// fullLocked reports whether the next round is not to wait for more: there is a batch, or
// somebody waits for a Flush. s.mu is held.
func (s *Shipper) fullLocked() bool {
	return s.rows >= s.o.BatchRows || s.bytes >= s.o.BatchBytes || len(s.flushes) > 0
}

// wake makes Run look at once. A kick that waits already stands for this one, too.
func (s *Shipper) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Flush stores everything put so far, the account of batches included, and
// waits for it.
func (s *Shipper) Flush(ctx context.Context) error {
	done := make(chan error, 1)
	s.mu.Lock()
	s.flushes = append(s.flushes, done)
	s.mu.Unlock()
	s.wake()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("flush rows: %w", ctx.Err())
	}
}

// errStopped is what a Flush gets when Run ends before it.
var errStopped = errors.New("flush rows: the shipper has stopped")

// Run stores what is put until ctx ends; then it returns nil at once, leaving
// what is not acknowledged to the next start. It returns an error only when the
// dead-letter file can't be written, or Options.GiveUp says so.
func (s *Shipper) Run(ctx context.Context) error {
	defer s.stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	err := s.meet(ctx, timer)
	if err == nil {
		err = s.create(ctx)
	}

	if err != nil {
		if ctx.Err() != nil {
			return nil
		}

		return err
	}

	for ctx.Err() == nil {
		wait := min(s.due(), s.checkCopies(ctx))
		if wait > 0 {
			s.rest(wait) // no connection is held through a long pause
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return nil
			case <-s.kick:
			case <-timer.C:
			}

			if s.due() > 0 { // woken for copies, or by rows that are too few for a round yet
				continue
			}
		}

		if err := s.round(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}

			return err
		}
	}

	return nil
}

// rest lets the sink close its connections until the next round, where that is far. A fleet
// would fill the server's table of connections with idle ones: two of each agent.
func (s *Shipper) rest(wait time.Duration) {
	if r, ok := s.sink.(Remote); ok && min(wait, s.o.Flush) >= restFrom {
		r.Rest()
	}
}

// create makes the tables, while the first rows are still being read, and finds out
// whether rows may be inserted: a store that will take none is known before there are
// any.
func (s *Shipper) create(ctx context.Context) error {
	err := s.until(ctx, "create tables", func() error {
		err := s.sink.Create(ctx)
		if err == nil {
			err = s.sink.Probe(ctx)
		}

		return err
	})
	s.count(func(st *Stats) { st.Reached = err == nil })
	if err == nil {
		s.recovered()
	}

	return err
}

// round stores what waits, then acknowledges it.
func (s *Shipper) round(ctx context.Context) error {
	s.mu.Lock()
	parts, flushes := s.takeLocked()
	s.mu.Unlock()
	err := s.store(ctx, parts, len(flushes) > 0)
	if err == nil {
		s.acknowledge(ctx, parts)
	}

	for _, p := range parts {
		s.memory.Release(p.held)
		s.Recycle(p.rows)
	}

	for _, done := range flushes {
		done <- err
	}

	return err
}

// takeLocked takes what the next round stores: what waits, up to a full batch (after an
// outage much more waits, and a batch is a copy). A part that is a batch by itself is
// therefore alone in its round, and inserted where it lies.
func (s *Shipper) takeLocked() (parts []part, flushes []chan error) {
	n, rows, bytes := len(s.waiting), 0, int64(0)
	for i, p := range s.waiting {
		whole := p.rows.Len() >= s.o.BatchRows || p.bytes >= s.o.BatchBytes
		if i > 0 && (whole || rows >= s.o.BatchRows || bytes >= s.o.BatchBytes) {
			n = i
			break
		}

		rows, bytes = rows+p.rows.Len(), bytes+p.bytes
	}

	parts = s.waiting[:n:n]
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
		flushes, s.flushes = s.flushes, nil
	}

	for _, p := range parts {
		s.rows -= p.rows.Len()
		s.bytes -= p.bytes
	}

	return parts, flushes
}

// store stores parts and what is due of the account. Lines that were refused while these rows
// were made are durable before the store has the rows: an acknowledged mark stands for both.
func (s *Shipper) store(ctx context.Context, parts []part, flush bool) error {
	if err := s.dead.sync(); err != nil {
		return err
	}

	defer s.buffers.release()
	if err := s.storeAll(ctx, s.buffers.cut(parts, s.o.BatchRows)); err != nil {
		return err
	}

	settle(parts)
	return s.account(ctx, flush)
}

// stop gives the flushes that came too late their answer, and closes the file.
func (s *Shipper) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, done := range s.flushes {
		done <- errStopped
	}

	s.flushes = nil
	if err := s.dead.close(); err != nil {
		s.o.Logger.Error("close dead letters", "err", err)
	}
}
