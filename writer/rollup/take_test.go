package rollup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// TestStream_Take: the rows are the same, whenever they are taken and whatever is in the
// bundle already.
func TestStream_Take(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := work(t)
		o := Options{Job: "j", Rank: 3, Records: All}
		want, _ := f.run(o)
		s := New(o)
		var got, bundle row.Rows
		give := func() {
			appendRows(&got, &bundle)
			bundle = row.Rows{Raws: row.Raws{Rows: bundle.Raws.Rows[:0]}}
		}
		f.feed(s, segment.Position{}, func() {
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
		if d := cmp.Diff(want, got, unpacked); d != "" {
			t.Fatalf("rows differ (-at the end +in between):\n%s\n%s", d, f)
		}
	})
}

// TestStream_ManyWords: the list of words begins anew when it has grown large, and
// rows that wait for their step keep theirs.
func TestStream_ManyWords(t *testing.T) {
	f := &fixture{}
	f.begin()
	f.addText(`{"meta":{"format":"laggard/1","segment":"0000000000000001","job":"j","incarnation":"0000000000000007"}}`)
	path := func(i int) string { return fmt.Sprint(i, strings.Repeat("x", 4000)) }
	const steps = 1000
	at := 1_753_000_000_000_000_000
	for i := range steps {
		f.addText(fmt.Sprintf(`{"kind":"SaveCheckpoint","step":%d,"start":%d,"dur":5,"path":"%s"}`, i, at+i*1000+1, path(i)))
		f.addText(fmt.Sprintf(`{"kind":"Step","step":%d,"start":%d,"dur":900}`, i, at+i*1000))
	}

	s := New(Options{Job: "j", Records: All})
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
	f.feed(s, segment.Position{}, give)
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

// TestStream_NewWords: lines that each bring a new long word fill the list before their words
// are more than some megabytes, however few rows they are, and the rows tell what
// their words take.
func TestStream_NewWords(t *testing.T) {
	s := New(Options{Job: "j", Records: All})
	s.Segment(1, "1753000000")
	word := strings.Repeat("w", 4000)
	total, told, crowded := 0, 0, 0
	var bundle row.Rows
	for i := range 3000 {
		kind := "FP"
		if i%10 == 9 {
			kind = "Step"
		}

		path := fmt.Sprint(i, word)
		s.Line(int64(i)*20_000, fmt.Appendf(nil, `{"kind":"%s","step":%d,"start":%d,"dur":900,"path":"%s"}`, kind, i/10, 1_753_000_000_000_000_000+int64(i/10)*10_000+int64(i%10*1000)%9000, path))
		total += len(path)
		if !s.words.Full() {
			continue
		}

		crowded++
		s.Take(&bundle)
		words := 0
		for _, w := range bundle.Raws.Words {
			words += len(w)
		}

		if words > 2<<20 || bundle.Raws.Bytes > words || len(bundle.Raws.Rows) < 100 {
			t.Fatalf("%d rows with words of %d bytes, %d told", len(bundle.Raws.Rows), words, bundle.Raws.Bytes)
		}

		told += bundle.Raws.Bytes
		bundle = row.Rows{}
	}

	s.End()
	s.Take(&bundle)
	told += bundle.Raws.Bytes
	if crowded < 5 || told < total || told > total+total/10 {
		t.Fatalf("%d times crowded; %d bytes of words told, want %d", crowded, told, total)
	}
}
