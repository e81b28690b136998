package ageing

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestLoop_AccountsExactly is R15 in small: a writer under pressure, nothing
// shipped. Records written = records left + records aged, and every loss line in an
// aged segment is in the ledger.
func TestLoop_AccountsExactly(t *testing.T) {
	g := newTestTree(t)
	const limit = 64 << 10
	o := g.options(limit * 10)
	o.SegmentLimit = limit
	o.Rank = func(segment.RankDir) (owned, live bool) { return true, true }
	l := g.loop(o)
	dir := filepath.Join(g.dir, "j1", "0")
	clock := epoch
	w, err := segment.Open(dir, record.Meta{Job: "j1", Incarnation: 1}, segment.Options{
		Limit: limit, Now: func() time.Time { return clock },
		OnClose: func(string) {
			clock = clock.Add(time.Second)
			must(t, l.look(t.Context()))
			if s := l.Stats(); s.Tree > o.Cap {
				t.Errorf("tree of %d bytes, cap %d", s.Tree, o.Cap)
			}
		},
	})
	must(t, err)
	const n = 20000
	losses := 0
	for seq := range uint64(n) {
		kind := record.Communication
		if seq%10 == 0 {
			kind = record.Step
		}

		r := record.New(kind)
		r.Start, r.Dur, r.Ring, r.Seq, r.Op = epoch.UnixNano()+int64(seq), 5, 1, seq, "allreduce"
		must(t, w.AppendRecord(&r))
		if seq%100 == 0 {
			loss := record.Loss{Ring: 1, Kind: "Communication", Reason: record.RingFull, Count: 3}
			must(t, w.AppendLine(loss.AppendLine(nil)))
			losses += 3
		}
	}

	must(t, w.Close())
	left := map[string]uint64{}
	all, err := segment.List(dir)
	must(t, err)
	for _, s := range all {
		rows, err := loss(segment.RankDir{RankID: record.RankID{Job: "j1"}, Path: dir}, s)
		must(t, err)
		for _, r := range rows {
			left[r.State+r.Kind] += r.Records
		}
	}

	aged := map[string]uint64{}
	for _, r := range g.ledger {
		if r.Incarnation != 1 || r.Segment == 0 || r.Job != "j1" || r.Name == "" {
			t.Fatalf("entry without identity: %+v", r)
		}

		aged[r.State+r.Kind] += r.Records
	}

	for key, want := range map[string]uint64{"agedStep": n / 10, "agedCommunication": n - n/10, "droppedCommunication": uint64(losses)} {
		if aged[key] == 0 || left[key] == 0 || aged[key]+left[key] != want {
			t.Errorf("%s: %d aged + %d left, want %d", key, aged[key], left[key], want)
		}
	}

	if got := l.Stats().Records; got != int64(aged["agedStep"]+aged["agedCommunication"]) {
		t.Errorf("Stats.Records=%d", got)
	}
}

func TestLoss_OtherLines(t *testing.T) {
	g := newTestTree(t)
	path := filepath.Join(g.dir, "j1/0/100")
	g.write("j1/0/100", 1, 0)
	const content = `{"Kind":1,"Flag":16,"SourceKind":0,"Timestamp":1,"Id":1}
{"Kind":1,"Flag":32,"SourceKind":0,"Timestamp":2,"Id":1}
{"Kind":1,"Flag":16,"SourceKind":1,"Timestamp":1,"Id":1}
{"Kind":1,"Flag":2,"SourceKind":0,"Timestamp":1,"Id":2}
garbage
{"kind":"Step","start":1,"du`
	must(t, os.WriteFile(path, []byte(content), 0o644))
	all, err := segment.List(filepath.Dir(path))
	must(t, err)
	dir := segment.RankDir{RankID: record.RankID{Job: "j1"}, Path: filepath.Dir(path)}
	rows, err := loss(dir, all[0])
	must(t, err)
	if len(rows) != 2 || rows[0].Records != 2 || rows[0].State != stateAged || rows[1].Records != 2 || rows[1].Reason != record.TornLine {
		t.Errorf("rows: %+v", rows)
	}

	must(t, os.Remove(path))
	if rows, err = loss(dir, all[0]); err != nil || len(rows) != 1 || rows[0].Records != 0 || rows[0].Bytes != uint64(len(content)) {
		t.Errorf("rows of a missing file: %+v, %v", rows, err)
	}

	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, `{"kind":"k%d","start":1,"dur":1}`+"\n", i)
	}

	must(t, os.WriteFile(path, []byte(many.String()), 0o644))
	sum := uint64(0)
	rows, err = loss(dir, all[0])
	must(t, err)
	for _, r := range rows {
		sum += r.Records
	}

	if len(rows) > maxEntries+1 || sum != 1000 {
		t.Errorf("%d entries, %d records", len(rows), sum)
	}
}
