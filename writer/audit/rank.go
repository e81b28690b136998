package audit

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
)

// communication is the word of the kind that windows sum up.
var communication = record.Communication.String()

// rank is what files, ledgers and store know of one rank.
type rank struct {
	number uint32
	disk   disk

	// The local ledger: segments that ageing deleted before they were shipped.
	aged   map[uint64]string
	losses map[ship.LedgerKey]row.Ledger

	// The store: its rows, and the calls that its windows sum up.
	rows  map[ship.Place]ship.Held
	calls uint64

	// The store's ledger.
	segments map[row.Ledger]row.Ledger // by what names a line of a segment's account: of several the one that covers most of it counts
	names    map[uint64]string
	batched  map[ship.Place]uint64 // rows of the batches that were acknowledged, of all kinds
}

// local takes an entry of the local ledger. A loss that was told again after a restart (writer/taskd)
// has the same key, and counts once.
func (r *rank) local(l *row.Ledger) {
	r.losses[ship.KeyOfLedger(l)] = *l
	if l.State == "aged" && l.Name != "" {
		r.aged[uint64(l.Segment)] = segment.Plain(l.Name)
	}
}

// entry takes an entry of the store's ledger: of a batch, how many rows the store acknowledged; of a
// segment, what became of its records. A segment that was read again after it had grown has several,
// each of all of it: the one that reaches furthest counts.
func (r *rank) entry(l *row.Ledger) {
	if l.Batch != "" {
		p := ship.Place{Table: l.Table, Rank: l.Rank, Of: uint64(l.Incarnation)}
		if l.Table == row.RecordsTable {
			p.Of = uint64(l.Segment)
		}

		r.batched[p] += l.Records
		return
	}

	if _, ok := r.losses[ship.KeyOfLedger(l)]; ok {
		return // the local ledger's own entry, come back
	}

	k := row.Ledger{Segment: l.Segment, Name: l.Name, State: l.State, Reason: l.Reason, Kind: l.Kind}
	if old, ok := r.segments[k]; !ok || l.LastOffset > old.LastOffset {
		r.segments[k] = *l
	}

	r.names[uint64(l.Segment)] = segment.Plain(l.Name)
}

// one compares a rank and adds it to the account. What is lost was emitted: the local ledger says so
// itself, of the files' loss lines it is added here.
func (a *auditor) one(r *rank) {
	d := &r.disk
	a.report.Segments += len(d.names)
	a.report.Damaged = append(a.report.Damaged, d.damaged...)
	for _, l := range r.losses {
		switch l.State {
		case "emitted":
			a.report.Emitted += l.Records
		case "aged":
			a.report.Aged += l.Records
		case "dropped":
			a.report.Dropped[l.Reason] += l.Records
		}
	}

	for _, l := range d.lost {
		a.report.Dropped[l.Reason] += l.Count
		a.report.Emitted += l.Count
	}

	gone, goneCalls := a.gone(r)
	a.segments(r, gone)
	a.calls(r, uint64(max(goneCalls, 0)))
	a.processes(r)
}

// calls compares the sum of a rank's windows with the Communication that files and
// ledger know, whether or not this is stored one by one as well.
func (a *auditor) calls(r *rank, gone uint64) {
	d := &r.disk
	least, most := d.calls.least+gone, d.calls.most+gone
	least = min(least, most-min(most, d.held))
	if !a.isRaw(communication) {
		a.report.Emitted += d.calls.most // those of gone segments are counted
		a.report.Summarised += r.calls
		a.report.InFlight += most - min(most, r.calls)
	}

	if r.calls < least && !d.live || r.calls > most {
		a.differ(Difference{
			Rank: int(r.number), Table: row.CommunicationsTable, Kind: communication, Want: least, Have: r.calls,
			Reason: fmt.Sprintf("the windows of this rank sum up %d calls; files and ledger have %d (and %d in flight)", r.calls, least, most-least),
		})
	}
}

// gone adds the segments that were shipped and then deleted, as the store's ledger
// remembers them: what of them was emitted and not lost, by kind, and how many calls.
func (a *auditor) gone(r *rank) (rows map[ship.Place]int64, calls int64) {
	rows = map[ship.Place]int64{}
	for k, l := range r.segments {
		if _, on := r.disk.names[uint64(k.Segment)]; on {
			continue
		}

		raw, n := a.isRaw(k.Kind), int64(l.Records)
		switch k.State {
		case "emitted":
			a.report.Emitted += l.Records
			if !raw && k.Kind != communication && k.Kind != "" {
				a.report.Summarised += l.Records
			}
		case "dropped":
			a.report.Dropped[k.Reason] += l.Records
			n = -n
		case "aged":
			a.report.Aged += l.Records
			n = -n
		default:
			continue
		}

		if raw && k.Kind != "" { // of no known kind: dropped
			rows[r.raw(uint64(k.Segment), k.Kind)] += n
		}

		if k.Kind == communication {
			calls += n
		}
	}

	return rows, calls
}

// raw is the place of a segment's raw rows of one kind.
func (r *rank) raw(segment uint64, kind string) ship.Place {
	return ship.Place{Table: row.RecordsTable, Rank: r.number, Of: segment, Kind: kind}
}

// segments compares the raw rows of each segment and kind.
func (a *auditor) segments(r *rank, gone map[ship.Place]int64) {
	want := map[ship.Place]bounds{}
	for k, b := range r.disk.rows {
		if k.Table != row.RecordsTable || k.Kind == communication && !a.isRaw(k.Kind) {
			continue // by calls
		}

		if !a.isRaw(k.Kind) { // --records none: the steps hold them
			a.report.Emitted += b.most
			a.report.Summarised += b.most
			continue
		}

		want[k] = b
		a.report.Emitted += b.most
	}

	for k, n := range gone { // its emitted is counted
		most := uint64(max(n, 0))
		want[k] = bounds{most, most}
	}

	for k := range r.rows {
		if _, ok := want[k]; !ok && k.Table == row.RecordsTable {
			want[k] = bounds{}
		}
	}

	for k, b := range want {
		h := r.rows[k]
		a.report.Stored += h.Distinct
		a.report.InFlight += b.most - min(b.most, max(h.Distinct, b.least))
		if why := r.why(k, b, h); why != "" {
			a.differ(Difference{
				Rank: int(r.number), Segment: r.nameOf(k.Of), ID: record.ID(k.Of).String(),
				Table: row.RecordsTable, Kind: k.Kind, Want: b.least, Have: h.Rows, Reason: why,
			})
		}
	}
}

// why says what is wrong with a segment's rows of one kind, "" for nothing.
func (r *rank) why(k ship.Place, want bounds, have ship.Held) string {
	if have.Rows > have.Distinct {
		return fmt.Sprintf("%d rows are there more than once", have.Rows-have.Distinct)
	}

	if have.Distinct >= want.least && have.Distinct <= want.most {
		return ""
	}

	// What the store acknowledged is by batches, which hold all kinds of a segment: so is the total.
	_, on := r.disk.names[k.Of]
	acknowledged := r.batched[r.raw(k.Of, "")]
	total := uint64(0)
	for other, h := range r.rows {
		if other.Table == k.Table && other.Of == k.Of {
			total += h.Distinct
		}
	}

	switch {
	case have.Distinct > want.most && (r.aged[k.Of] != "" || r.disk.aged[k.Of]):
		return "the ledger holds the segment as aged, and the store has rows of it"
	case have.Distinct > want.most && !on && r.names[k.Of] == "":
		return "neither files nor ledger know this segment: it was deleted without an account"
	case have.Distinct > want.most:
		return "the store has rows that the segment does not: the file was cut or replaced after it was shipped"
	case total < acknowledged:
		return fmt.Sprintf("the store acknowledged %d rows of this segment and has %d: rows were deleted there, or lost with the server", acknowledged, total)
	case on && r.disk.live:
		return "" // whoever ships it is not there yet
	case on:
		return "on disk and not in the store: not shipped yet; `laggard ingest SOURCE --to STORE` does"
	}

	return "shipped by the ledger's account and not in the store"
}

// nameOf is the file name of a segment, by whoever knows it, "" unknown.
func (r *rank) nameOf(id uint64) string {
	return cmp.Or(r.disk.names[id], r.names[id], r.aged[id])
}

// processes compares the rows of the tables that are keyed by process: steps and windows. A window
// that a pass stored before its end has complements, which are rows more than the files give.
func (a *auditor) processes(r *rank) {
	cut := len(r.aged) > 0 || r.cut() // the files are not all there
	all := map[ship.Place]bounds{}
	for p := range r.rows {
		all[p] = bounds{}
	}

	maps.Copy(all, r.disk.rows)
	for p, b := range all {
		if p.Table == row.RecordsTable {
			continue
		}

		h := r.rows[p]
		whole := h.Distinct - h.Complements
		acknowledged := r.batched[p]
		d := Difference{Rank: int(r.number), Table: p.Table, ID: record.ID(p.Of).String(), Want: b.least, Have: h.Rows}
		switch {
		case h.Rows > h.Distinct:
			d.Reason = fmt.Sprintf("%d rows of this process are there more than once", h.Rows-h.Distinct)
		case h.Distinct < acknowledged:
			d.Want = acknowledged
			d.Reason = fmt.Sprintf("the store acknowledged %d rows of this process and has %d: rows were deleted there, or lost with the server", acknowledged, h.Distinct)
		case cut || r.disk.live && whole < b.least:
			continue // the ledger of batches is all that is left to compare with
		case whole < b.least:
			d.Reason = fmt.Sprintf("%d rows of this process are not in the store: not shipped yet; `laggard ingest SOURCE --to STORE` does", b.least-whole)
		case whole > b.most:
			d.Reason = fmt.Sprintf("the store has %d rows more of this process than its files: files were cut or replaced", whole-b.most)
		default:
			continue
		}

		a.differ(d)
	}
}

// cut reports whether segments were deleted after they were shipped.
func (r *rank) cut() bool {
	if r.disk.names == nil {
		return true
	}

	for id := range r.names {
		if _, on := r.disk.names[id]; !on {
			return true
		}
	}

	return false
}
