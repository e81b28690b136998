package feed

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// spool takes records with a time in any order and gives them back in the order of
// their times, those of one time as they came. So many bytes of them stay in memory;
// more are sorted part by part into one temporary file, and the parts merged. The file
// has no name any more, so it goes with the process. Where no file can be made all stay
// in memory. The zero value is ready to use.
//
// A record is its length (uint16), its time (int64), and what the caller makes of it.
type spool struct {
	limit  int   // bytes in memory; 0 means spoolBytes
	noFile error // why there is no file: all records stay in memory
	data   []byte
	order  []ref // the records of data
	spare  []ref // as large, to sort
	file   *os.File
	ends   []int64 // of each part in the file
}

// ref is where a record is in data, and its time.
type ref struct {
	at   int64
	from int
}

const (
	// spoolBytes is a part: 10,000 ranks × 50 steps. Those of a fleet's day, 2,000 parts, are
	// merged at once in 0.25 GiB.
	spoolBytes = 32 << 20
	// spoolRead is what is read of a part at a time.
	spoolRead  = 128 << 10
	recordHead = 2 + 8
)

// add takes a record: write appends it to what it is given.
func (s *spool) add(at int64, write func([]byte) []byte) error {
	// A record is shorter than 64 KiB, so that the next one fits whatever it is.
	if len(s.data)+math.MaxUint16 > cmp.Or(s.limit, spoolBytes) && len(s.order) > 0 && s.noFile == nil {
		if err := s.part(); err != nil {
			return err
		}
	}

	if s.data == nil {
		s.data = make([]byte, 0, cmp.Or(s.limit, spoolBytes)) // at once: what is not written takes no memory
	}

	from := len(s.data)
	s.data = binary.LittleEndian.AppendUint16(s.data, 0)
	s.data = binary.LittleEndian.AppendUint64(s.data, uint64(at))
	s.data = write(s.data)
	binary.LittleEndian.PutUint16(s.data[from:], uint16(len(s.data)-from))
	s.order = append(s.order, ref{at, from})
	return nil
}

// sort puts the records in memory in order, those of one time as they came. It merges stretches that rise already,
// for those of one process mostly come in order: a sort that compares them all makes analyze take 1.2 times as long.
func (s *spool) sort() {
	var ends []int
	for i := range s.order {
		if i+1 == len(s.order) || s.order[i+1].at < s.order[i].at {
			ends = append(ends, i+1)
		}
	}

	s.spare = slices.Grow(s.spare[:0], len(s.order))[:len(s.order)]
	for len(ends) > 1 {
		from, merged := 0, ends[:0]
		for i := 0; i < len(ends); i += 2 {
			middle, end := ends[i], ends[min(i+1, len(ends)-1)]
			merge(s.spare[from:end], s.order[from:middle], s.order[middle:end])
			from, merged = end, append(merged, end)
		}

		s.order, s.spare, ends = s.spare, s.order, merged
	}
}

// merge fills to with a and b, which are in order. Those of a came first.
func merge(to, a, b []ref) {
	for k := range to {
		if len(b) == 0 || len(a) > 0 && a[0].at <= b[0].at {
			to[k], a = a[0], a[1:]
		} else {
			to[k], b = b[0], b[1:]
		}
	}
}

// record is the record at a place of data, at its time.
func (s *spool) record(from int) []byte {
	return s.data[from:][:binary.LittleEndian.Uint16(s.data[from:])]
}

// part moves what is in memory to the end of the file.
func (s *spool) part() (err error) {
	if s.file == nil {
		if s.file, s.noFile = temporary(); s.noFile != nil {
			return nil
		}
	}

	s.sort()
	w := bufio.NewWriterSize(s.file, 1<<20)
	end := int64(0)
	if n := len(s.ends); n > 0 {
		end = s.ends[n-1]
	}

	for _, r := range s.order {
		n, err := w.Write(s.record(r.from))
		if end += int64(n); err != nil {
			return spoolError(err)
		}
	}

	if err := w.Flush(); err != nil {
		return spoolError(err)
	}

	s.ends = append(s.ends, end)
	s.data, s.order = s.data[:0], s.order[:0]
	return nil
}

// spoolError names the folder: a full /tmp is the usual reason, and TMPDIR the way out of it.
func spoolError(err error) error {
	return fmt.Errorf("sort rows in a temporary file: %w: free space in %s, or name a folder that has some with TMPDIR", err, os.TempDir())
}

// temporary returns a file without a name.
func temporary() (*os.File, error) {
	f, err := os.CreateTemp("", "laggard-rows-*")
	if err != nil {
		return nil, spoolError(err)
	}

	// Nobody else opens it, and it goes with the process, whatever kills that.
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(spoolError(err), f.Close())
	}

	return f, nil
}

// each hands over all records in order, without their heads, and empties the spool. The
// bytes are valid during the call only.
func (s *spool) each(take func(at int64, record []byte) error) (err error) {
	if s.file == nil {
		s.sort()
		for _, r := range s.order {
			if err := take(r.at, s.record(r.from)[recordHead:]); err != nil {
				return err
			}
		}

		*s = spool{}
		return nil
	}

	if err := s.part(); err != nil {
		return err
	}

	defer func() {
		err = errors.Join(err, s.file.Close())
		*s = spool{}
	}()
	// The memory of the last part is given back before the parts are read again.
	s.data, s.order, s.spare = nil, nil, nil
	var parts []*part // in the order of their records
	put := func(p *part) error {
		more, err := p.next()
		if more {
			k, _ := slices.BinarySearchFunc(parts, p, (*part).compare)
			parts = slices.Insert(parts, k, p)
		}

		return err
	}
	from := int64(0)
	for k, end := range s.ends {
		p := &part{number: k, r: bufio.NewReaderSize(io.NewSectionReader(s.file, from, end-from), spoolRead)}
		from = end
		if err := put(p); err != nil {
			return err
		}
	}

	for len(parts) > 0 {
		p := parts[0]
		if err := take(p.at, p.record[recordHead:]); err != nil {
			return err
		}

		parts = slices.Delete(parts, 0, 1)
		if err := put(p); err != nil {
			return err
		}
	}

	return nil
}

// part is a stretch of the file whose records are in order.
type part struct {
	r      *bufio.Reader
	number int
	at     int64
	record []byte // with its head
}

// next moves on to the next record, and reports whether there is one.
func (p *part) next() (bool, error) {
	if _, err := p.r.Discard(len(p.record)); err != nil {
		return false, spoolError(err)
	}

	p.record = nil
	head, err := p.r.Peek(recordHead)
	if errors.Is(err, io.EOF) && len(head) == 0 {
		return false, nil
	}

	if err != nil {
		return false, spoolError(err)
	}

	size := int(binary.LittleEndian.Uint16(head))
	p.at = int64(binary.LittleEndian.Uint64(head[2:]))
	if p.record, err = p.r.Peek(size); err != nil {
		return false, spoolError(err)
	}

	return true, nil
}

// compare puts the part with the earliest record first, of one time the one that came first.
func (p *part) compare(q *part) int {
	return cmp.Or(cmp.Compare(p.at, q.at), cmp.Compare(p.number, q.number))
}
