package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
	"github.com/laggard-dev/laggard/writer/ledger"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// line is a record's place.
type line struct {
	rank, ring uint32
	seq        uint64
}

// lines adds the records of complete lines of a segment.
func addLines(t *testing.T, into map[line]bool, path string, data []byte) {
	t.Helper()
	rank, err := strconv.ParseUint(filepath.Base(filepath.Dir(path)), 10, 32)
	if err != nil {
		t.Fatal(err)
	}

	var p record.Parser
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			return
		}

		if typ, err := p.Parse(data[:i]); err == nil && typ == record.LineRecord {
			into[line{uint32(rank), p.Record.Ring, p.Record.Seq}] = true
		}

		data = data[i+1:]
	}
}

// recording is what a traced agent did to the disk.
type recording struct {
	s     *stage
	calls []logged
}

func traceOf(t *testing.T, c *leftovers, away bool) *recording {
	t.Helper()
	s := c.stage(t, away)
	for _, dir := range []string{s.dir, filepath.Dir(s.storeDir())} { // the roots are there before the agent is
		if dir != s.block {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}

	rec := &recording{s: s}
	s.traced(func(call *sysCall) int {
		if call.done && call.changes() && !strings.HasPrefix(call.path, s.rings) {
			rec.calls = append(rec.calls, logged{*call, time.Now()})
		}

		return goOn
	})
	return rec
}

// TestPowerLoss is R5: the system calls of a real agent (segments, ledger, cursor,
// Parquet store) are recorded; the disk is put together as a loss of power at any of
// them may leave it, with everything that was not synced dropped, reordered or torn;
// and the next start has to live with it. What was synced is stored or accounted for,
// nothing stands twice, nothing is stored that was not written. LAGGARD_IMAGES sets
// how many images; make test takes 30.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	images := chaosSetting(t, "LAGGARD_IMAGES", 30)
	seed := chaosSetting(t, "LAGGARD_SEED", int(time.Now().UnixNano()&0xffffff))
	random := rand.New(rand.NewPCG(uint64(seed), 5))
	c := newLeftovers(t, 8, "--cap", "100KB", "--segment-size", "16KiB")
	recordings := []*recording{traceOf(t, c, false), traceOf(t, c, true)}
	var mu sync.Mutex
	var lost, unsynced, torn int
	var oldest time.Duration
	t.Run("images", func(t *testing.T) {
		for i := range images {
			rec, inner := recordings[i%2], rand.New(rand.NewPCG(random.Uint64(), 5))
			at := inner.IntN(len(rec.calls) + 1)
			t.Run(fmt.Sprintf("%d_after_%d_calls", i, at), func(t *testing.T) {
				t.Parallel()
				o := rec.image(t, inner, at)
				mu.Lock()
				defer mu.Unlock()
				lost, unsynced, oldest, torn = lost+o.lost, unsynced+o.unsynced, max(oldest, o.oldest), torn+o.torn
			})
		}
	})
	t.Logf("LAGGARD_SEED=%d: %d images of %d and %d system calls: %d records lost, of %d that were written and not synced (for %v at most); %d torn lines of the ledger left out",
		seed, images, len(recordings[0].calls), len(recordings[1].calls), lost, unsynced, oldest, torn)
	if !t.Failed() && images >= 50 && (lost == 0 || lost == unsynced) {
		t.Error("the images show nothing: all or none of what was not synced is lost")
	}
}

// loss is what an image has lost.
type loss struct {
	lost, unsynced, torn int
	oldest               time.Duration
}

// image lays the disk as it may be after the first n calls, starts, and checks.
func (rec *recording) image(t *testing.T, r *rand.Rand, n int) loss {
	p := newDisk()
	written, synced := map[line]bool{}, map[line]bool{}
	for i := range rec.calls[:n] {
		call := &rec.calls[i]
		p.do(call)
		f := p.files[call.path]
		if f == nil || !segmentFile.MatchString(call.path) {
			if call.name == "fsync" && rankFolder.MatchString(call.path) { // the name is safe now: so is what was synced before
				for path, f := range p.safe {
					if f != nil && filepath.Dir(path) == call.path {
						addLines(t, synced, path, f.safe)
					}
				}
			}

			continue
		}

		switch call.name {
		case "write":
			addLines(t, written, call.path, f.data)
		case "fsync":
			if p.safe[call.path] == f {
				addLines(t, synced, call.path, f.safe)
			}
		}
	}

	var o loss
	o.unsynced = len(written) - len(synced)
	if n > 0 {
		for path, f := range p.files {
			if f != nil && len(f.dirty) > 0 && segmentFile.MatchString(path) {
				o.oldest = max(o.oldest, rec.calls[n-1].at.Sub(f.since))
			}
		}
	}

	root := t.TempDir()
	dir, store := filepath.Join(root, "profiling"), filepath.Join(root, "mount", "store")
	for _, d := range []string{dir, filepath.Dir(store)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	lay(t, p.lose(r), r, func(path string) string {
		if rest, ok := strings.CutPrefix(path, rec.s.dir); ok {
			return dir + rest
		}

		return store + strings.TrimPrefix(path, rec.s.storeDir())
	})
	stored := recovered(t, dir, store)
	aged := 0
	bad, err := ledger.Read(dir, func(r row.Ledger) error {
		switch {
		case r.Batch != "":
		case r.State == "aged":
			aged += int(r.Records)
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	o.torn = bad // of an Append that did not return
	missing := 0
	for l := range synced {
		if !stored[l] {
			missing++
		}
	}

	if missing > aged {
		t.Errorf("%d records that were synced are not stored, %d of them are accounted for as aged", missing, aged)
	}

	for l := range stored {
		if !written[l] {
			t.Errorf("%+v is stored and was never written", l)
		}
	}

	o.lost = max(0, len(written)-len(stored)-aged)
	if o.lost > o.unsynced {
		t.Errorf("%d records lost, %d were not synced", o.lost, o.unsynced)
	}

	return o
}

// recovered does what the next start does with an image: the ledger is opened, a new
// process of each rank writes beside what is there, everything is shipped. It returns
// what is stored of the old process.
func recovered(t *testing.T, dir, store string) map[line]bool {
	t.Helper()
	l, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const fresh = 77 // a ring that no old process had
	for rank := range leftRanks {
		w, err := segment.Open(filepath.Join(dir, "j1", strconv.Itoa(rank)), record.Meta{Job: "j1", Rank: rank, Incarnation: 4711}, segment.Options{})
		if err != nil {
			t.Fatalf("open segments after the loss: %v", err)
		}

		r := record.New(record.Step)
		r.Ring, r.Step, r.Start, r.Dur = fresh, 1, time.Now().UnixNano(), 1
		if err := w.AppendRecord(&r); err != nil {
			t.Fatal(err)
		}

		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}

	for range 2 { // twice: the second time stores nothing
		sink, err := intake.OpenStore("parquet:"+store, clickhouse.Options{})
		if err != nil {
			t.Fatal(err)
		}

		o := intake.Options{State: filepath.Join(dir, ".laggard")}
		o.Records = rollup.All
		if _, err := intake.Once(context.Background(), dir, sink, o); err != nil {
			t.Fatalf("ingest after the loss: %v", err)
		}

		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
	}

	stored, news := map[line]bool{}, 0
	each(t, store, row.RecordsTable, func(r *row.Record) {
		if r.Ring == fresh {
			news++
			return
		}

		k := line{r.Rank, r.Ring, r.Seq}
		if stored[k] {
			t.Errorf("%+v is stored twice", k)
		}

		stored[k] = true
	})
	if news != leftRanks {
		t.Errorf("%d of %d records of the new processes are stored", news, leftRanks)
	}

	return stored
}
