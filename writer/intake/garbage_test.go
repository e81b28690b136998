package intake_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/rollup"
)

// TestGarbage: lines of nobody, a torn last line and a file of noise are counted,
// and the rest is stored.
func TestGarbage(t *testing.T) {
	dir, want := written(t, 1, 50, 1<<20)
	path := filepath.Join(dir, "j1", "0")
	for name, text := range map[string]string{"1753900000": "\x00\xff noise\n{\"a\":1}\nnot json\n{\"kind\":\"St", "1753900001": "", "1753900002": strings.Repeat("x", 100)} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	target := t.TempDir()
	r := once(t, dir, "parquet:"+target, all())
	got := dump(t, target)
	if n := len(got[row.LedgerTable]) - len(want[row.LedgerTable]); n != 4 {
		t.Errorf("%d more accounts, want two of the noise and two of the torn line", n)
	}

	got[row.LedgerTable] = want[row.LedgerTable]
	same(t, got, want)
	if r.Losses[record.TornLine].Events != 1 {
		t.Fatalf("report: %s", r)
	}
}

// TestOtherVersions: segments of an older and of a newer laggard, with kinds, lines
// and fields that nobody here knows. What can be read is stored, what can't be is
// skipped and counted, and nothing stops. R31.
func TestOtherVersions(t *testing.T) {
	dir, want := written(t, 1, 50, 1<<20)
	path := filepath.Join(dir, "j1", "0")
	const at = `"start":1753056100000000000,"dur":5`
	for name, lines := range map[string][]string{
		"1752000000": { // older: no segment id, no groups, fewer fields
			`{"meta":{"format":"laggard/0","job":"j1","rank":0}}`,
			`{"kind":"FP","step":900,` + at + `}`,
		},
		"1753900000": { // newer
			`{"meta":{"format":"laggard/9","segment":"00000000000000ff","job":"j1","rank":0,"incarnation":"00000000000003e8","colour":"green"}}`,
			`{"kind":"Prefetch","step":901,` + at + `,"ring":7,"seq":0,"depth":{"a":[1,2]}}`,
			`{"kind":"FP","step":901,` + at + `,"ring":7,"seq":1,"colour":"green"}`,
			`{"weather":{"clouds":7}}`,
			`{"weather":{"clouds":8}}`,
		},
	} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	target := t.TempDir()
	once(t, dir, "parquet:"+target, all())
	got := dump(t, target)
	if n := len(got[row.StepsTable]); n != len(want[row.StepsTable]) {
		t.Errorf("%d steps, want %d", n, len(want[row.StepsTable]))
	}

	kinds, unknown := map[string]int{}, 0
	for _, r := range got[row.RecordsTable] {
		for _, kind := range []string{"Prefetch", "FP"} {
			if strings.Contains(r, "Kind:"+kind+" ") {
				kinds[kind]++
			}
		}
	}

	for _, l := range got[row.LedgerTable] {
		if strings.Contains(l, "State:dropped Reason:unknown") && strings.Contains(l, "Records:2 ") {
			unknown++
		}
	}

	if kinds["Prefetch"] != 1 || kinds["FP"] != 50+2 || unknown != 1 {
		t.Errorf("records %v, %d accounts of two unknown lines; ledger:\n%s", kinds, unknown, strings.Join(got[row.LedgerTable], "\n"))
	}

	if r := once(t, dir, "parquet:"+target, all()); r.Stored() != 0 {
		t.Errorf("a second pass: %s", r)
	}
}

// TestBadTimes: lines whose time lies years away make no partitions: they are dead
// letters with their reason, counted in the account, and kept once however often
// they are read.
func TestBadTimes(t *testing.T) {
	dir, want := written(t, 1, 50, 1<<20)
	path := filepath.Join(dir, "j1", "0", "1753900000")
	var text strings.Builder
	for i, start := range []int64{-5, -1_753_055_000_000_000_000, 9_000_000_000_000_000_000, 1_100_000_000_000_000_000} {
		fmt.Fprintf(&text, `{"kind":"FP","step":%d,"start":%d,"dur":5,"ring":7,"seq":%d}`+"\n", 100+i, start, i)
	}

	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}

	target, o := t.TempDir(), all()
	o.State = t.TempDir()
	for range 2 {
		r := once(t, dir, "parquet:"+target, o)
		if n := r.Losses[rollup.BadTime]; n.Events != 4 {
			t.Fatalf("report: %s", r)
		}
	}

	got := dump(t, target)
	accounts := strings.Join(got[row.LedgerTable], "\n")
	if !strings.Contains(accounts, "State:dropped Reason:bad-time Kind:FP Records:4 ") || !strings.Contains(accounts, "Name:1753900000 Batch: Table: State:emitted Reason: Kind:FP Records:4 ") {
		t.Errorf("the account:\n%s", accounts)
	}

	got[row.LedgerTable] = want[row.LedgerTable]
	same(t, got, want)
	letters, err := os.ReadFile(filepath.Join(o.State, "dead-letters.jsonl"))
	if n := bytes.Count(letters, []byte(`"reason":"bad-time: `)); err != nil || n != 4 || !bytes.Contains(letters, []byte("1100000000000000000")) {
		t.Errorf("%d dead letters, want 4: %v\n%s", n, err, letters)
	}
}

// TestLongWords: records with paths of 64 KiB are stored with their beginnings, and the
// pass says so.
func TestLongWords(t *testing.T) {
	dir, want := written(t, 1, 50, 1<<20)
	const n = 1000
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `{"kind":"SaveCheckpoint","step":900,"start":%d,"dur":5,"ring":7,"seq":%d,"path":"/%d/%s"}`+"\n", 1753900000_000000000+i, i, i, strings.Repeat("d", 64<<10))
	}

	if err := os.WriteFile(filepath.Join(dir, "j1", "0", "1753900000"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}

	target := t.TempDir()
	r := once(t, dir, "parquet:"+target, all())
	if clipped, crowded := r.Altered[rollup.WordTooLong], r.Altered[rollup.Crowded]; clipped != n || crowded == 0 || crowded > n || !strings.Contains(r.String(), "cut (word-too-long): words of 1000 records") {
		t.Errorf("report: %s", r)
	}

	got, long := dump(t, target)[row.RecordsTable], 0
	for _, line := range got {
		if strings.Contains(line, "Path:/") && strings.Contains(line, "d~") {
			long++
		}
	}

	if len(got) != len(want[row.RecordsTable])+n || long != n {
		t.Errorf("%d records, %d of them with a cut path, want %d more than %d", len(got), long, n, len(want[row.RecordsTable]))
	}
}
