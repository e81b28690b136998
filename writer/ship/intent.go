package ship

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// intent is what one insert is about to store. It is on the disk before the first
// byte of the insert leaves, so that a shipper that comes after a crash makes the
// same batch again, however it would cut the rows by itself: the same rows have
// the same ID, and with it the same query_id and deduplication token.
//
//	written, not begun    crash: nothing was sent; the rows are looked up (none is there) and sent
//	begun, not answered   crash: the insert is waited for, its rows are looked up, what is missing is sent under its ID
//	answered              crash: the rows are looked up (all are there)
//	torn by the crash     the insert was not begun; the one before it was answered
//	file lost or damaged  the rows are cut anew; each is looked up all the same
//	rows are others now   (--records was changed, a segment was aged): their ID is another; each is looked up all the same
//
// The last two are why rows are looked up one by one and an intent is never
// believed: it adds the identity of the batch, not the knowledge of what is stored.
type intent struct {
	Table string    `json:"table"`
	Job   string    `json:"job"`
	Day   int64     `json:"day"`
	ID    record.ID `json:"id"`
	// Claims are the rows: of each stream a run, in the stream's own order of the
	// table, job and day.
	Claims []claim `json:"claims"`
}

// claim is a run of rows of one stream.
type claim struct {
	Stream string    `json:"stream"`
	First  record.ID `json:"first"` // hash of the first row
	Rows   int       `json:"rows"`
	begun  bool      // First was met
}

const (
	// intentHead is the length of the head of the file: length and CRC32C of what
	// follows, in decimal and hex.
	intentHead = 10 + 1 + 8 + 1
	// maxIntents bounds the intents that a series of crashes leaves open.
	maxIntents = 8
	// maxIntentBytes bounds the file: a claim is some 60 bytes.
	maxIntentBytes = 64 << 20
	// intentPatience is how long the first rows of an open intent wait for the rest,
	// intentsUntil how long after the first Put an open intent is believed to matter:
	// its rows may have been acknowledged before the crash.
	intentPatience = 5 * time.Second
	intentsUntil   = time.Minute
)

// intents is the file of the intents that are open: the insert under way, which is
// one at a time, and those that an earlier process left. It is one record that is
// overwritten in place: when the next insert begins, this one was answered. It is
// owned by Run's goroutine but for open, which the shipper's mu guards.
type intents struct {
	path string
	file *os.File // nil until the first, and after a failure
	open []*intent
	said bool // that it can't be written
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// loadIntents reads what an earlier process left open. A damaged file is no
// intent; one that can't be read is an error.
func loadIntents(path string) (*intents, error) {
	in := &intents{path: path}
	if path == "" {
		return in, nil
	}
	b, err := keep.Read(path, maxIntentBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return in, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read intents: %w", err)
	}
	in.open = parseIntents(b)
	in.open = in.open[max(0, len(in.open)-maxIntents):]
	return in, nil
}

func parseIntents(b []byte) []*intent {
	if len(b) < intentHead {
		return nil
	}
	var length int
	var sum uint32
	if n, err := fmt.Sscanf(string(b[:intentHead]), "%d %x\n", &length, &sum); n != 2 || err != nil {
		return nil
	}
	if length < 0 || length > len(b)-intentHead {
		return nil
	}
	body := b[intentHead : intentHead+length]
	var open []*intent
	if crc32.Checksum(body, castagnoli) != sum || json.Unmarshal(body, &open) != nil {
		return nil
	}
	return open
}

// write makes the intent of b durable, beside those that are still open.
func (in *intents) write(b *intent) error {
	body, err := json.Marshal(append(append([]*intent(nil), in.open...), b))
	if err != nil {
		panic("BUG: marshal intent: " + err.Error())
	}
	head := fmt.Sprintf("%010d %08x\n", len(body), crc32.Checksum(body, castagnoli))
	if in.file == nil {
		if in.file, err = createIntents(in.path); err != nil {
			return fmt.Errorf("write intent: %w", err)
		}
	}
	if _, err = in.file.WriteAt(append([]byte(head), body...), 0); err == nil {
		err = unix.Fdatasync(int(in.file.Fd()))
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("write intent: %w", err), in.close())
	}
	return err
}

func createIntents(path string) (*os.File, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, err
	}
	if err := keep.SyncDir(dir); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// clear says that no insert is under way and nothing is in doubt.
func (in *intents) clear() error {
	if in.file == nil {
		return nil
	}
	return in.file.Truncate(0)
}

func (in *intents) close() error {
	if in.file == nil {
		return nil
	}
	f := in.file
	in.file = nil
	return f.Close()
}

// intend writes down that the rows of c that are not in stored are about to be
// inserted as b. Without a disk to write on shipping goes on: what is stored is
// looked up row by row in any case.
func (s *Shipper) intend(c cutBatch, stored []bool, b *Batch) {
	if s.intents.path == "" {
		return
	}
	err := s.intents.write(&intent{Table: b.Table, Job: b.Job, Day: b.Day, ID: b.ID, Claims: claims(c, stored)})
	if err != nil && !s.intents.said {
		s.o.Logger.Warn("batches have no identity over a crash: rows are looked up one by one", "err", err)
	}
	s.intents.said = err != nil
}

// claims returns the runs of the rows of c that are not in stored.
func claims(c cutBatch, stored []bool) []claim {
	var all []claim
	places := map[*Stream]int{}
	at := 0
	for _, r := range c.runs {
		for i := at; i < at+r.n; i++ {
			if stored[i] {
				continue
			}
			k, ok := places[r.stream]
			if !ok {
				k = len(all)
				places[r.stream] = k
				all = append(all, claim{Stream: r.stream.Name, First: record.ID(c.sum(i))})
			}
			all[k].Rows++
		}
		at += r.n
	}
	return all
}

// take marks the rows of one Put that are among an intent's, and moves its claim
// on. The rows of a stream must come in their order.
func (n *intent) take(p *part) (mask []bool, taken int) {
	var c *claim
	for i := range n.Claims {
		if n.Claims[i].Stream == p.stream.Name {
			c = &n.Claims[i]
			break
		}
	}
	if c == nil || c.Rows <= 0 {
		return nil, 0
	}
	b := onlyTable(p.rows, n.Table)
	for i := range b.Len() {
		if at := b.order(i); c.Rows == 0 || at.job != n.Job || at.day != n.Day {
			continue
		}
		if !c.begun && record.ID(b.sum(i)) != c.First {
			continue
		}
		if mask == nil {
			mask = make([]bool, b.Len())
		}
		c.begun, mask[i] = true, true
		c.Rows--
		taken++
	}
	return mask, taken
}

// left is the number of rows that were not met.
func (n *intent) left() int {
	rows := 0
	for _, c := range n.Claims {
		rows += c.Rows
	}
	return rows
}

// partialLocked reports whether some rows of an open intent are waiting and some are not:
// then the round that stores them waits for the rest. s.mu is held.
func (s *Shipper) partialLocked() bool {
	if len(s.intents.open) > 0 && time.Since(s.first) > intentsUntil {
		s.intents.open = nil
	}
	for _, n := range s.intents.open {
		trial := *n
		trial.Claims = append([]claim(nil), n.Claims...)
		some := 0
		for i := range s.waiting {
			_, taken := trial.take(&s.waiting[i])
			some += taken
		}
		if some > 0 && trial.left() > 0 {
			return true
		}
	}
	return false
}

// reclaim takes the rows of the open intents out of parts, as the batches that they
// were. Whatever their streams know, these are looked up.
func (s *Shipper) reclaim(parts []part) []cutBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []cutBatch
	kept := s.intents.open[:0]
	for _, n := range s.intents.open {
		c := cutBatch{Batch: &Batch{Table: n.Table, Job: n.Job, Day: n.Day}}
		for i := range parts {
			p := &parts[i]
			mask, taken := n.take(p)
			if taken == 0 {
				continue
			}
			b := onlyTable(p.rows, n.Table)
			c.add(b.missing(invert(mask)))
			setTable(p.rows, b.missing(mask))
			c.runs = append(c.runs, run{stream: p.stream, n: taken, back: true})
		}
		if c.Len() > 0 {
			c.seal()
			s.o.Logger.Debug("rows of an insert that a crash broke off", "table", n.Table, "id", n.ID, "rows", c.Len(), "whole", c.ID == n.ID)
			all = append(all, c)
		}
		if n.left() > 0 {
			kept = append(kept, n)
		}
	}
	s.intents.open = kept
	return all
}

func invert(mask []bool) []bool {
	not := make([]bool, len(mask))
	for i := range mask {
		not[i] = !mask[i]
	}
	return not
}

// onlyTable is the rows of one table as a batch that shares their memory.
func onlyTable(r *row.Rows, table string) *Batch {
	b := &Batch{Table: table}
	switch table {
	case row.RanksTable:
		b.Ranks = r.Ranks
	case row.StepsTable:
		b.Steps = r.Steps
	case row.CommunicationsTable:
		b.Communications = r.Communications
	case row.RecordsTable:
		b.Raws = r.Raws
	case row.LedgerTable:
		b.Ledger = r.Ledger
	}
	return b
}

// setTable replaces the rows of b's table in r.
func setTable(r *row.Rows, b *Batch) {
	switch b.Table {
	case row.RanksTable:
		r.Ranks = b.Ranks
	case row.StepsTable:
		r.Steps = b.Steps
	case row.CommunicationsTable:
		r.Communications = b.Communications
	case row.RecordsTable:
		r.Raws = b.Raws
	case row.LedgerTable:
		r.Ledger = b.Ledger
	}
}

// add appends the rows of another batch of the same table.
func (b *Batch) add(o *Batch) {
	b.Ranks = append(b.Ranks, o.Ranks...)
	b.Steps = append(b.Steps, o.Steps...)
	b.Communications = append(b.Communications, o.Communications...)
	b.Raws.Append(&o.Raws)
	b.Ledger = append(b.Ledger, o.Ledger...)
}

// order is the place of row i in the order of inserts.
func (b *Batch) order(i int) order {
	switch b.Table {
	case row.RanksTable:
		return orderOfRank(&b.Ranks[i])
	case row.StepsTable:
		return orderOfStep(&b.Steps[i])
	case row.CommunicationsTable:
		return orderOfCommunication(&b.Communications[i])
	case row.RecordsTable:
		return orderOfRaw(&b.Raws, i)
	}
	return orderOfLedger(&b.Ledger[i])
}
