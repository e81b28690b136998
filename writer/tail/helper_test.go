package tail

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a rank directory that a test does things to, and a stream over it.
type disk struct {
	t    *testing.T
	root string
	dir  string
	tree *Tree
	got  []string // "segment offset line"
	ids  []record.ID
	lost []row.Ledger
	name string
}

func (d *disk) Segment(id record.ID, name string) {
	d.name = name
	d.ids = append(d.ids, id)
}

func (d *disk) Torn(int64) {}

func (d *disk) Line(offset int64, line []byte) {
	d.got = append(d.got, fmt.Sprintf("%s %d %s", d.name, offset, line))
}

func (d *disk) path(name string) string { return filepath.Join(d.dir, name) }

func (d *disk) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(d.path(name), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) add(name, text string) {
	d.t.Helper()
	f, err := os.OpenFile(d.path(name), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}

	if _, err := f.WriteString(text); err != nil {
		d.t.Fatal(err)
	}

	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// look scans and reads to the end, as a pass does.
func (d *disk) look() {
	d.t.Helper()
	streams, err := d.tree.Scan()
	d.must(err)
	for _, s := range streams {
		err := s.Refresh()
		d.must(err)
		for more := true; more; {
			_, more, err = s.Read(64, d) // a small budget: every way through the loop
			d.must(err)
		}

		d.lost = append(d.lost, s.Losses()...)
	}
}

func (d *disk) stream() *Stream {
	d.t.Helper()
	streams, err := d.tree.Scan()
	d.must(err)
	if len(streams) != 1 {
		d.t.Fatalf("%d streams", len(streams))
	}

	return streams[0]
}

func (d *disk) want(lines ...string) {
	d.t.Helper()
	if !slices.Equal(d.got, lines) {
		d.t.Fatalf("lines:\n  %s\nwant:\n  %s", strings.Join(d.got, "\n  "), strings.Join(lines, "\n  "))
	}
}

func (d *disk) wantLost(losses ...row.Ledger) {
	d.t.Helper()
	got := slices.Clone(d.lost)
	for i := range got { // the rest is the file's
		l := got[i]
		if number, _ := segment.Number(l.Name); l.AtNs != number*int64(time.Second) || (l.State == "aged") != (l.Reason == record.Aged) || l.Job != "job" || l.Rank != 3 {
			d.t.Errorf("lost %+v", l)
		}

		got[i] = row.Ledger{Name: l.Name, Reason: l.Reason, Bytes: l.Bytes, Records: l.Records}
	}

	if !slices.Equal(got, losses) {
		d.t.Fatalf("lost %+v, want %+v", got, losses)
	}
}

func (d *disk) compress(name string) {
	d.t.Helper()
	b, err := os.ReadFile(d.path(name))
	d.must(err)
	w, err := zstd.NewWriter(nil)
	d.must(err)
	d.write(name+".zst", string(w.EncodeAll(b, nil)))
	d.must(w.Close())
	d.must(os.Remove(d.path(name)))
}

func newDisk(t *testing.T, o Options) *disk {
	t.Helper()
	root := t.TempDir()
	d := &disk{t: t, root: root, dir: filepath.Join(root, "job", "3"), tree: New(root, o)}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(d.tree.Close)
	return d
}

func meta(id string) string {
	return `{"meta":{"format":"laggard/1","segment":"` + id + `","job":"job","rank":3}}`
}

const (
	idA = "00000000000000aa"
	idB = "00000000000000bb"
)
