package tail

import (
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Reasons of a loss that are not in package record.
const (
	// tooLong is a line longer than package segment reads: 1 MiB.
	tooLong = "too-long"
	// late is what was added to a segment after the next one had been begun, or a
	// whole segment that appeared before the ones that were read.
	late = "late"
)

// lose notes what of a file will never be yielded: bytes as far as they are known, and lines, 0 where they
// are not.
func (s *Stream) lose(f *file, reason string, bytes, lines int64) {
	state := "dropped"
	if reason == record.Aged {
		state = "aged"
	}

	s.losses = append(s.losses, row.Ledger{
		Job: s.Dir.Job, Rank: uint32(s.Dir.Rank), Segment: f.id, Name: f.name, State: state, Reason: reason,
		Records: uint64(max(lines, 0)), Bytes: uint64(max(bytes, 0)), AtNs: f.number * int64(time.Second),
	})
	s.tree.o.Logger.Warn("lines lost", "dir", s.Dir.Path, "segment", f.name, "reason", reason, "bytes", bytes, "lines", lines)
}

// loseRest counts what was seen of a file and not read.
func (s *Stream) loseRest(f *file, reason string) {
	rest := f.seen - f.offset
	if f.compressed {
		rest = f.size // how much it holds is not known
	}

	if rest > 0 {
		s.lose(f, reason, rest, 0)
	}
}

// Losses returns what was lost since the last call, as entries of the account.
func (s *Stream) Losses() []row.Ledger {
	l := s.losses
	s.losses = nil
	return l
}

// countSkipped counts the lines that the reader left out since the last call, for they were
// longer than it takes.
func (s *Stream) countSkipped(f *file) {
	if s.reader == nil {
		return
	}

	lines, bytes := s.reader.Skipped()
	if lines > s.skippedLines {
		s.lose(f, tooLong, bytes-s.skippedBytes, lines-s.skippedLines)
		s.skippedLines, s.skippedBytes = lines, bytes
	}
}
