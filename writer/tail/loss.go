package tail

import "github.com/laggard-dev/laggard/schemas/record"

// Loss is something that will never be yielded.
type Loss struct {
	Segment string // name
	ID      record.ID
	Reason  string // record.Truncated, record.Aged, record.TornLine, tooLong, late, foreignOwner
	Bytes   int64  // as far as known
	Lines   int64  // 0 = not known
}

// Reasons of a Loss that are not in package record.
const (
	// tooLong is a line longer than segment.MaxLine.
	tooLong = "too-long"
	// late is what was added to a segment after the next one had been begun, or a
	// whole segment that appeared before the ones that were read.
	late = "late"
)

// lose counts a loss of a file.
func (s *Stream) lose(f *file, l Loss) {
	l.Segment, l.ID = f.name, f.id
	s.losses = append(s.losses, l)
	s.tree.o.Logger.Warn("lines lost", "dir", s.Dir.Path, "segment", f.name, "reason", l.Reason, "bytes", l.Bytes, "lines", l.Lines)
}

// loseRest counts what was seen of a file and not read.
func (s *Stream) loseRest(f *file, reason string) {
	rest := f.seen - f.offset
	if f.compressed {
		rest = f.size // how much it holds is not known
	}

	if rest > 0 {
		s.lose(f, Loss{Reason: reason, Bytes: rest})
	}
}

// Losses returns what was lost since the last call.
func (s *Stream) Losses() []Loss {
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
		s.lose(f, Loss{Reason: tooLong, Bytes: bytes - s.skippedBytes, Lines: lines - s.skippedLines})
		s.skippedLines, s.skippedBytes = lines, bytes
	}
}
