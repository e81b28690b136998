package agent

import (
	"context"
	"path/filepath"
	"strconv"

	"github.com/laggard-dev/laggard/collector/drain"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/taskd"
)

// openSegment returns the segment writer of a new incarnation.
func (a *agent) openSegment(m record.Meta) (drain.Writer, error) {
	a.mu.Lock()
	turn := a.own[rankKey{m.Job, m.Rank}]
	if turn == nil {
		turn = new(segment.Turn)
		a.own[rankKey{m.Job, m.Rank}] = turn
	}

	a.mu.Unlock()
	dir := filepath.Join(a.o.Dir, m.Job, strconv.Itoa(m.Rank))
	var w drain.Writer
	var err error
	if a.o.Format == "taskd" {
		w, err = taskd.Open(dir, m, taskd.Options{State: filepath.Join(a.o.Dir, ".laggard"), Limit: a.o.SegmentBytes, Turn: turn, Account: a.account})
	} else {
		w, err = segment.Open(dir, m, segment.Options{Limit: a.o.SegmentBytes, Turn: turn, TrustUIDs: a.o.TrustUIDs, OnClose: a.segmentClosed})
	}

	if err != nil {
		return nil, err
	}

	a.hint() // a rank directory may be new
	return &rotating{Writer: w, rotated: a.rotated}, nil
}

// rotated ages before another segment is filled, so the tree stays under its cap
// however fast it grows, and shows the follower the new one.
func (a *agent) rotated() {
	a.ageing.MakeRoom(context.Background())
	a.hint()
}

// rotating is a segment writer that says when it has begun another segment, so
// that nobody need wait for the next look.
type rotating struct {
	drain.Writer
	rotated func()
	name    string
}

// AppendRecord implements drain.Writer.
func (r *rotating) AppendRecord(rec *record.Record) error {
	err := r.Writer.AppendRecord(rec)
	r.look()
	return err
}

// Flush implements drain.Writer.
func (r *rotating) Flush() error {
	err := r.Writer.Flush()
	r.look()
	return err
}

func (r *rotating) look() {
	if name := r.Writer.Name(); name != r.name {
		r.name = name
		r.rotated()
	}
}

// grown tells the follower that segments are longer.
func (a *agent) grown() {
	if a.follower != nil {
		a.follower.Grown()
	}
}

// hint tells the follower that there are other segments than before.
func (a *agent) hint() {
	if a.follower != nil {
		a.follower.Hint()
	}
}

// segmentClosed compresses a segment when it is to be.
func (a *agent) segmentClosed(path string) {
	if a.o.Compress {
		if _, err := segment.Compress(path); err != nil {
			a.o.Logger.Warn("segment not compressed", "segment", path, "err", err)
		}
	}

	a.hint()
}
