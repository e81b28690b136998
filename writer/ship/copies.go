package ship

import (
	"context"
	"fmt"
	"math"
	"time"
)

// copyEvery is how often the store is asked whether rows are copied.
const copyEvery = time.Second

// storedRound is a round whose rows are stored, and perhaps not yet in a second place: a replica
// that dies takes its only copy along. So the cursor, and with it ageing, waits for it.
// After Options.Copies it goes on with one copy, counted and said, and what is there then is
// looked at again until it is copied.
type storedRound struct {
	acks []part // of each the stream and the mark
	mark any    // nil: nothing in it that waits, or unmarked
	// unmarked: the mark could not be had. A later one stands for these rows as well.
	unmarked bool
	at       time.Time
}

// acknowledge acknowledges the parts of a round that is stored, now or when they are
// copied.
func (s *Shipper) acknowledge(ctx context.Context, parts []part) {
	round := storedRound{at: time.Now()}
	for _, p := range parts {
		round.acks = append(round.acks, part{stream: p.stream, mark: p.mark})
	}

	if sink, ok := s.sink.(Remote); ok && len(parts) > 0 {
		mark, err := sink.Mark(ctx)
		if err != nil {
			s.o.Logger.Debug("ask for copies", "err", err) // the next mark is of these rows, too
		}

		round.mark, round.unmarked = mark, err != nil
		if mark != nil || err != nil || len(s.uncopied) > 0 {
			s.uncopied = append(s.uncopied, round)
			s.countUncopied()
			return
		}
	}

	round.ack()
}

// countUncopied tells how many rounds wait. AwaitCopies goes by it, so it is called with every
// change of the rounds, before whoever flushes gets an answer.
func (s *Shipper) countUncopied() {
	s.count(func(st *Stats) {
		if st.Uncopied = uint64(len(s.uncopied)); st.Uncopied == 0 {
			close(s.copied)
			s.copied = make(chan struct{})
		}
	})
}

// ack acknowledges each Put of the round.
func (r *storedRound) ack() {
	for _, a := range r.acks {
		a.stream.ack(a.mark)
	}
}

// checkCopies acknowledges what is copied, or has waited long enough, and returns when to
// look again.
func (s *Shipper) checkCopies(ctx context.Context) time.Duration {
	if len(s.uncopied) == 0 && s.single == nil {
		return math.MaxInt64
	}

	if rest := copyEvery - time.Since(s.asked); rest > 0 {
		return rest
	}

	sink := s.sink.(Remote)
	copied := func(mark any) bool {
		if mark == nil {
			return false
		}

		ok, err := sink.Copied(ctx, mark)
		if err != nil {
			s.o.Logger.Debug("ask for copies", "err", err)
		}

		return ok
	}
	// Rounds are acknowledged in the order in which they were stored. The first of them that got no copy in
	// time is told, and when the last has one.
	for len(s.uncopied) > 0 && ctx.Err() == nil {
		r := &s.uncopied[0]
		if r.unmarked {
			s.markAgain(ctx, sink)
		}

		switch {
		case r.mark == nil && !r.unmarked, copied(r.mark):
		case time.Since(r.at) < s.o.Copies:
			s.asked = time.Now()
			return copyEvery
		default:
			if s.single == nil {
				s.o.Logger.Warn("stored in one replica only: no second one has it", "for", s.o.Copies)
			}

			if r.mark != nil {
				s.single = r.mark
			}

			s.count(func(st *Stats) { st.Singles++ })
		}

		r.ack()
		s.uncopied = s.uncopied[1:]
		s.countUncopied()
	}

	s.asked = time.Now()
	if s.single != nil && len(s.uncopied) == 0 && copied(s.single) {
		s.o.Logger.Info("a second replica has what was in one only")
		s.single = nil
	}

	return copyEvery
}

// markAgain gives the first round the mark that could not be had then, or that of a later
// round, which is of its rows, too.
func (s *Shipper) markAgain(ctx context.Context, sink Remote) {
	r := &s.uncopied[0]
	mark, err := sink.Mark(ctx)
	if err != nil {
		s.o.Logger.Debug("ask for copies", "err", err)
		return
	}

	for _, later := range s.uncopied[1:] {
		if mark == nil {
			mark = later.mark
		}
	}

	r.mark, r.unmarked = mark, false
}

// AwaitCopies waits until no round waits for a second copy.
func (s *Shipper) AwaitCopies(ctx context.Context) error {
	for {
		var rounds uint64
		var copied chan struct{}
		s.count(func(st *Stats) { rounds, copied = st.Uncopied, s.copied })
		if rounds == 0 {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for a second copy: %w", ctx.Err())
		case <-copied:
		}
	}
}
