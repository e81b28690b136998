package rollup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"laggard/schemas/row"
)

// TestStream_Packed: packed rows are the same rows, whenever they are taken and
// whatever is in the bundle already.
func TestStream_Packed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := work(t)
		o := Options{Job: "j", Rank: 3, Records: All}
		want, _ := f.run(o)
		o.Packed = true
		s := New(o)
		var got, bundle row.Rows
		give := func() {
			bundle.Unpack()
			appendRows(&got, &bundle)
			bundle = row.Rows{Raws: row.Raws{Rows: bundle.Raws.Rows[:0]}}
		}
		f.feed(s, Position{}, func() {
			switch rapid.IntRange(0, 5).Draw(t, "take") {
			case 0:
				s.Take(&bundle)
			case 1:
				s.Take(&bundle)
				give()
			}
		})
		s.End()
		s.Take(&bundle)
		give()
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("rows differ (-plain +packed):\n%s\n%s", d, f)
		}
	})
}

// TestStream_ManyWords: the list of words begins anew when it has grown large, and
// rows that wait for their step keep theirs.
func TestStream_ManyWords(t *testing.T) {
	f := &fixture{}
	f.begin()
	f.addText(`{"meta":{"format":"laggard/1","segment":"0000000000000001","job":"j","incarnation":"0000000000000007"}}`)
	path := func(i int) string { return fmt.Sprint(i, strings.Repeat("x", 60<<10)) }
	const steps = 100
	at := 1_753_000_000_000_000_000
	for i := range steps {
		f.addText(fmt.Sprintf(`{"kind":"SaveCheckpoint","step":%d,"start":%d,"dur":5,"path":"%s"}`, i, at+i*1000+1, path(i)))
		f.addText(fmt.Sprintf(`{"kind":"Step","step":%d,"start":%d,"dur":900}`, i, at+i*1000))
	}
	s := New(Options{Job: "j", Packed: true, Records: All})
	renumbered, most := 0, 0
	var all []row.Record
	give := func() {
		var rows row.Rows
		s.Take(&rows)
		all = rows.Raws.AppendTo(all)
		if n := len(s.words.List()); n < most {
			renumbered, most = renumbered+1, n
		} else {
			most = n
		}
	}
	f.feed(s, Position{}, give)
	s.End()
	give()
	if renumbered == 0 {
		t.Fatalf("never renumbered: %d words", most)
	}
	n := 0
	for _, r := range all {
		if r.Kind == "SaveCheckpoint" {
			if r.Path != path(n) || r.Node != "" || r.Job != "j" {
				t.Fatalf("checkpoint %d of step %d has path %.20s", n, r.Step, r.Path)
			}
			n++
		}
	}
	if n != steps {
		t.Fatalf("%d checkpoints, want %d", n, steps)
	}
}
