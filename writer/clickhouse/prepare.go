package clickhouse

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/ClickHouse/ch-go/compress"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// prepared is a block of the table records as it goes over the wire: made and packed
// while the server works on the one before.
type prepared struct {
	header   []heading
	revision int
	data     []byte
}

// fits reports whether the block is what the server at l wants.
func (p *prepared) fits(l *link) bool {
	return l.packer != nil && p.revision == l.revision && slices.Equal(p.header, l.header)
}

// preparing holds the memory of Prepare.
type preparing struct {
	block  block            // of Prepare's goroutine
	packer *compress.Writer // of Prepare's goroutine
	raw    []byte           // of Prepare's goroutine

	mu   sync.Mutex
	free []*prepared // guarded by mu
}

// remember keeps the header of a table, for Prepare.
func (s *Sink) remember(table string, l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revision == l.revision && slices.Equal(s.heads[table], l.header) {
		return
	}
	if s.heads == nil {
		s.heads = map[string][]heading{}
	}
	s.heads[table], s.revision = slices.Clone(l.header), l.revision
}

// TakesRaws implements ship.RawSink. Over HTTP clickhouse-go makes the block, from
// columns of strings.
func (s *Sink) TakesRaws() bool { return !s.address.HTTP }

// Prepare implements ship.Preparer. Before the first insert it is not known how the
// server has the columns, and without compression there is little to prepare.
func (s *Sink) Prepare(rows row.Raws) any {
	s.mu.Lock()
	header, revision := s.heads[row.RecordsTable], s.revision
	s.mu.Unlock()
	if header == nil || s.address.Plain {
		return nil
	}
	w := &s.prepare
	if w.block.shape(row.RecordsTable, ship.RawLayout(), header) != nil {
		return nil // Insert says why
	}
	if w.packer == nil {
		w.packer = compress.NewWriter(compress.LevelZero, compress.LZ4)
	}
	w.block.fill(ship.RawLayout(), unsafe.Pointer(unsafe.SliceData(rows.Rows)), len(rows.Rows), rows.Words)
	p := w.take()
	p.header, p.revision, p.data = header, revision, p.data[:0]
	pack := func() error {
		err := w.packer.Compress(w.raw)
		p.data, w.raw = append(p.data, w.packer.Data...), w.raw[:0]
		return err
	}
	err := w.block.encode(revision, func(b []byte) error {
		for len(b) > 0 {
			n := min(len(b), frame-len(w.raw))
			w.raw = append(w.raw, b[:n]...)
			if b = b[n:]; len(w.raw) == frame {
				if err := pack(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil {
		err = pack()
	}
	if err != nil {
		s.Done(p)
		return nil // Insert says why
	}
	return p
}

func (w *preparing) take() *prepared {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.free)
	if n == 0 {
		return &prepared{}
	}
	p := w.free[n-1]
	w.free = w.free[:n-1]
	return p
}

// Done implements ship.Preparer.
func (s *Sink) Done(p any) {
	s.prepare.mu.Lock()
	defer s.prepare.mu.Unlock()
	s.prepare.free = append(s.prepare.free, p.(*prepared))
}
