package ship

import (
	"math/bits"

	"github.com/laggard-dev/laggard/schemas/row"
)

// The identities of rows, by table. Two rows with the same key are the same row. The columns of a
// key are all that a store has to read to tell what it has. A row of ranks has none here: it is
// that of a process, and the store has it when its Version is at least as high.
type (
	// StepKey is the identity of a step.
	StepKey struct {
		Job         string `col:"job" parquet:"job"`
		Rank        uint32 `col:"rank" parquet:"rank"`
		Incarnation uint64 `col:"incarnation" parquet:"incarnation"`
		Step        uint64 `col:"step" parquet:"step"`
		Repeat      uint16 `col:"repeat" parquet:"repeat"`
	}
	// CommunicationKey is the identity of a window of calls.
	CommunicationKey struct {
		Job         string `col:"job" parquet:"job"`
		Rank        uint32 `col:"rank" parquet:"rank"`
		Incarnation uint64 `col:"incarnation" parquet:"incarnation"`
		StepFrom    uint64 `col:"step_from" parquet:"step_from"`
		Repeat      uint16 `col:"repeat" parquet:"repeat"`
		Group       string `col:"group" parquet:"group"`
		Op          string `col:"op" parquet:"op"`
	}
	// RecordKey is the identity of a raw range.
	RecordKey struct {
		Segment uint64 `col:"segment" parquet:"segment"`
		Offset  uint64 `col:"offset" parquet:"offset"`
	}
	// VerdictKey is the identity of a decision.
	VerdictKey struct {
		Job     string `col:"job" parquet:"job"`
		AtNs    int64  `col:"at_ns" parquet:"at_ns"`
		Step    uint64 `col:"step" parquet:"step"`
		Node    string `col:"node" parquet:"node"`
		Finding string `col:"finding" parquet:"finding"`
		Group   string `col:"group" parquet:"group"`
	}
	// LedgerKey is the identity of an entry of the account.
	LedgerKey struct {
		Job         string `col:"job" parquet:"job"`
		Rank        uint32 `col:"rank" parquet:"rank"`
		Incarnation uint64 `col:"incarnation" parquet:"incarnation"`
		Segment     uint64 `col:"segment" parquet:"segment"`
		Batch       string `col:"batch" parquet:"batch"`
		Table       string `col:"table" parquet:"table"`
		State       string `col:"state" parquet:"state"`
		Reason      string `col:"reason" parquet:"reason"`
		Kind        string `col:"kind" parquet:"kind"`
		FirstOffset uint64 `col:"first_offset" parquet:"first_offset"`
		LastOffset  uint64 `col:"last_offset" parquet:"last_offset"`
	}
)

// KeyOfStep returns the identity of r.
func KeyOfStep(r *row.Step) StepKey {
	return StepKey{r.Job, r.Rank, r.Incarnation, r.Step, r.Repeat}
}

// KeyOfCommunication returns the identity of r.
func KeyOfCommunication(r *row.Communication) CommunicationKey {
	return CommunicationKey{r.Job, r.Rank, r.Incarnation, r.StepFrom, r.Repeat, r.Group, r.Op}
}

// KeyOfRaw returns the identity of r.
func KeyOfRaw(r *row.Raw) RecordKey { return RecordKey{r.Segment, r.Offset} }

// KeyOfVerdict returns the identity of r.
func KeyOfVerdict(r *row.Verdict) VerdictKey {
	return VerdictKey{r.Job, r.AtNs, r.Step, r.Node, r.Finding, r.Group}
}

// KeyOfLedger returns the identity of r.
func KeyOfLedger(r *row.Ledger) LedgerKey {
	return LedgerKey{r.Job, r.Rank, uint64(r.Incarnation), uint64(r.Segment), r.Batch, r.Table, r.State, r.Reason, r.Kind, r.FirstOffset, r.LastOffset}
}

// Places returns a function that maps keys to the places of their rows. The map is made when it
// is first needed: most rows are new, and nothing is asked for.
func Places[K comparable, T any](rows []T, key func(*T) K) func(K) []int {
	var m map[K][]int
	return func(wanted K) []int {
		if m == nil {
			m = make(map[K][]int, len(rows))
			places := make([]int, len(rows)) // mostly a key has one
			for i := range rows {
				places[i] = i
				if k := key(&rows[i]); m[k] == nil {
					m[k] = places[i : i+1 : i+1]
				} else {
					m[k] = append(m[k], i)
				}
			}
		}

		return m[wanted]
	}
}

// hash is a 64-bit hash of words, the same on every machine and in every version: batches' ids, which
// name files and tokens in stores, are made of it.
type hash uint64

// newHash begins a hash with the name of a table, so that rows of two tables never have one id.
func newHash(name string) hash {
	h := hash(0xcbf29ce484222325)
	h.text(name)
	return h
}

// add mixes a number in: the two halves of a 128-bit product, one over the other, as wyhash does. Its
// constants never change: batches that are stored are known by what comes out.
func (h *hash) add(v uint64) {
	hi, lo := bits.Mul64(uint64(*h)^v^0x9e3779b97f4a7c15, 0xff51afd7ed558ccd)
	*h = hash(bits.RotateLeft64(hi^lo, 23) + v)
}

// text mixes a text in, its length first: "ab", "c" is not "a", "bc".
func (h *hash) text(s string) {
	h.add(uint64(len(s)))
	for len(s) >= 8 {
		h.add(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
		s = s[8:]
	}

	var v uint64
	for i := range len(s) {
		v |= uint64(s[i]) << (8 * i)
	}

	h.add(v)
}

// sum hashes the identity of row i and the times that tell two rows of one
// identity apart, should there ever be such. Fields and order are part of batches'
// ids: the same row has the same sum in every version.
func (b *Batch) sum(i int) uint64 {
	var h hash
	switch b.Table {
	case row.RanksTable:
		r := &b.Ranks[i]
		h.text(r.Job)
		h.add(uint64(r.Rank))
		h.add(r.Incarnation)
		h.add(uint64(r.Version))
	case row.StepsTable:
		r := &b.Steps[i]
		h.text(r.Job)
		h.add(uint64(r.Rank)<<16 | uint64(r.Repeat))
		h.add(r.Incarnation)
		h.add(r.Step)
		h.add(uint64(r.StartNs))
		h.add(uint64(r.StepNs))
	case row.CommunicationsTable:
		r := &b.Communications[i]
		h.text(r.Job)
		h.text(r.Group)
		h.text(r.Op)
		h.add(uint64(r.Rank)<<16 | uint64(r.Repeat))
		h.add(r.Incarnation)
		h.add(r.StepFrom)
		h.add(uint64(r.TotalNs))
	case row.RecordsTable:
		r := &b.Raws.Rows[i]
		h.add(r.Segment)
		h.add(r.Offset)
		h.add(uint64(r.StartNs))
		h.add(uint64(r.DurNs))
	case row.VerdictsTable:
		r := &b.Verdicts[i]
		for _, s := range []string{r.Job, r.Node, r.Finding, r.Group, r.State} {
			h.text(s)
		}

		h.add(uint64(r.AtNs))
		h.add(r.Step)
	case row.LedgerTable:
		r := &b.Ledger[i]
		for _, s := range []string{r.Job, r.Batch, r.Table, r.State, r.Reason, r.Kind} {
			h.text(s)
		}

		for _, v := range []uint64{uint64(r.Rank), uint64(r.Incarnation), uint64(r.Segment), r.FirstOffset, r.LastOffset, r.Records} {
			h.add(v)
		}
	}

	return uint64(h)
}
