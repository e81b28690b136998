package segment

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/record"
)

// TestWriter_Model does random things to a writer and its directory, kills and full
// disks among them, and holds them to a list: what was flushed stands once, in
// segments that were not aged; what was only accepted stands once at most, and Next
// tells truly which.
func TestWriter_Model(t *testing.T) {
	base := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		m := &model{T: t, dir: filepath.Join(base, fmt.Sprint("j", round), "3"), clock: 1000}
		m.disk = unsynced()
		m.open()
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) { m.append(rapid.IntRange(1, 60).Draw(t, "n")) },
			"flush":  func(*rapid.T) { m.settle(m.w.Flush()) },
			"sync":   func(*rapid.T) { m.settle(m.w.Sync()) },
			"meta": func(t *rapid.T) {
				meta := testMeta(1)
				meta.Pod = rapid.StringN(0, 10, 10).Draw(t, "pod")
				if err := m.w.SetMeta(meta); err != nil {
					t.Fatal(err)
				}
			},
			"clock": func(t *rapid.T) { m.clock += rapid.Int64Range(-5000, 5000).Draw(t, "by") },
			"fault": func(t *rapid.T) {
				m.disk.from = m.disk.calls + rapid.IntRange(0, 5).Draw(t, "in")
				m.disk.to = m.disk.from + rapid.IntRange(1, 6).Draw(t, "calls")
				m.disk.err = rapid.SampledFrom([]error{syscall.ENOSPC, syscall.EIO}).Draw(t, "error")
				m.disk.short = rapid.Bool().Draw(t, "short")
			},
			"kill": func(t *rapid.T) {
				m.tear(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "torn"))
				m.open()
			},
			"restart": func(*rapid.T) {
				m.disk.from, m.disk.to = -1, -1
				if err := m.w.Close(); err != nil {
					m.Logf("close: %v", err) // an earlier rotation's
				}

				m.flushed = m.next
				m.open()
			},
			"age": func(*rapid.T) { m.age() },
			"":    func(*rapid.T) { m.check() },
		})
	})
}

type model struct {
	*rapid.T
	dir   string
	clock int64
	disk  *faultDisk
	w     *Writer

	next    uint64          // to be appended
	flushed uint64          // all before it are on disk
	aged    map[uint64]bool // were on disk and went with their segment
}

func (m *model) open() {
	m.Helper()
	m.disk.from, m.disk.to = -1, -1
	w, err := Open(m.dir, testMeta(1), Options{
		Limit: minLimit, Buffer: 900, FS: m.disk, Now: func() time.Time { return time.Unix(m.clock, 0) },
	})
	if err != nil {
		m.Fatal(err)
	}

	m.w = w
	n := w.Next()[1]
	if n == 0 && !m.identified() {
		n = m.flushed // aged away with all before it: the ring's own tail goes on from there
		for seq := range m.aged {
			n = max(n, seq+1)
		}
	}

	if n < m.flushed || n > m.next {
		m.Fatalf("Next()=%d after a restart: %d were flushed, %d accepted", n, m.flushed, m.next)
	}

	m.next, m.flushed = n, n
}

// identified reports whether some segment still begins with a whole line: a full disk
// leaves a newest one without, and ageing may take all before it.
func (m *model) identified() bool {
	all, err := List(m.dir)
	if err != nil {
		m.Fatal(err)
	}

	for _, s := range all {
		b, err := os.ReadFile(filepath.Join(m.dir, s.Name))
		if err != nil {
			m.Fatal(err)
		}

		if bytes.IndexByte(b, '\n') > 0 {
			return true
		}
	}

	return false
}

func (m *model) append(n int) {
	for range n {
		if m.w.AppendRecord(testRecord(1, m.next)) != nil {
			return
		}

		m.next++
	}
}

// settle takes the result of a flush or sync.
func (m *model) settle(err error) {
	if err == nil || len(m.w.buf) == 0 {
		m.flushed = m.next
	}
}

// tear adds what a kill in mid-write leaves of a line to the open segment.
func (m *model) tear(b []byte) {
	if m.w.file == nil {
		return
	}

	f, err := os.OpenFile(m.w.path(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		m.Fatal(err)
	}
	defer f.Close()
	line := testRecord(1, m.next).AppendLine(nil)
	if len(b) > 0 {
		line = line[:rand.N(len(line)-1)]
	} else {
		line = nil
	}

	if _, err := f.Write(line); err != nil {
		m.Fatal(err)
	}
}

// age deletes the oldest segment, never the newest.
func (m *model) age() {
	all, err := List(m.dir)
	if err != nil {
		m.Fatal(err)
	}

	if len(all) < 2 {
		return
	}

	if m.aged == nil {
		m.aged = make(map[uint64]bool)
	}

	for seq := range m.read(all[0].Name) {
		m.aged[seq] = true
	}

	if err := Remove(m.dir, all[0]); err != nil {
		m.Fatal(err)
	}
}

// read counts the records of a segment.
func (m *model) read(name string) map[uint64]int {
	r, err := OpenReader(filepath.Join(m.dir, name))
	if err != nil {
		m.Fatal(err)
	}
	defer r.Close()
	got := make(map[uint64]int)
	var p record.Parser
	for {
		line, offset, err := r.Next()
		if err != nil {
			break
		}

		typ, err := p.Parse(line)
		if err != nil || offset == 0 && typ != record.LineMeta {
			m.Fatalf("segment %s at %d: %q: %v", name, offset, line, err)
		}

		if typ == record.LineRecord {
			got[p.Record.Seq]++
		}
	}

	return got
}

func (m *model) check() {
	all, err := List(m.dir)
	if err != nil {
		m.Fatal(err)
	}

	got := make(map[uint64]int)
	for _, s := range all {
		if s.Size > minLimit {
			m.Fatalf("segment %s has %d bytes", s.Name, s.Size)
		}

		for seq, n := range m.read(s.Name) {
			got[seq] += n
		}
	}

	for seq := range m.next {
		switch n := got[seq]; {
		case m.aged[seq] && n != 0, n > 1:
			m.Fatalf("record %d stands %d times, aged: %v", seq, n, m.aged[seq])
		case seq < m.flushed && !m.aged[seq] && n != 1:
			m.Fatalf("record %d was flushed and stands %d times", seq, n)
		}
	}

	if len(got)+len(m.aged) > int(m.next) {
		m.Fatalf("%d records stand, %d aged, %d were appended", len(got), len(m.aged), m.next)
	}
}
