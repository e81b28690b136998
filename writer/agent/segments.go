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
	turn := a.turn(record.RankID{Job: m.Job, Rank: m.Rank})
	dir := filepath.Join(a.o.Dir, m.Job, strconv.Itoa(m.Rank))
	defer a.hint() // a rank directory may be new
	if a.o.Format == "taskd" {
		return taskd.Open(dir, m, taskd.Options{State: filepath.Join(a.o.Dir, ".laggard"), Limit: a.o.SegmentBytes, Turn: turn, Account: a.account})
	}

	return segment.Open(dir, m, segment.Options{Limit: a.o.SegmentBytes, Turn: turn, TrustUIDs: a.o.TrustUIDs, OnClose: a.segmentClosed})
}

// turn returns what the writers of a rank's directory share; the rank is ours from now on.
func (a *agent) turn(rank record.RankID) *segment.Turn {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own[rank] == nil {
		a.own[rank] = new(segment.Turn)
	}

	return a.own[rank]
}

// rotated ages before another segment is filled, so the tree stays under its cap
// however fast it grows, and shows the follower the new one.
func (a *agent) rotated() {
	a.ageing.MakeRoom(context.Background())
	a.hint()
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
