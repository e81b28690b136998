package simulate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/segment"
)

// shardRanks is how many ranks' files are open at a time. A larger job is played
// again for each shard: the same job, by the same seed.
const shardRanks = 512

// Write simulates cfg and writes what the job leaves behind below dir, which it
// makes: <job>/<rank>/<unix seconds> (laggard's lines or, by cfg.Record.Format,
// TaskD's with parallel_group.json), topology.json (not of a job that restarts:
// a file can't say that ranks moved), truth.json and scenario.yaml. The directory must be empty or missing.
func Write(dir string, cfg Config) (Truth, error) {
	if err := cfg.Validate(); err != nil {
		return Truth{}, err
	}

	if err := makeEmpty(dir); err != nil {
		return Truth{}, err
	}

	if err := save(filepath.Join(dir, "scenario.yaml"), "scenario", cfg.YAML); err != nil {
		return Truth{}, err
	}

	var truth Truth
	var err error
	for from := 0; from < cfg.Shape.World(); from += shardRanks {
		f := &files{dir: dir, cfg: &cfg, from: from, to: from + shardRanks}
		truth, err = run(cfg, nil, f)
		if err := errors.Join(err, f.close()); err != nil {
			return Truth{}, fmt.Errorf("write job %s: %w", cfg.Job, err)
		}
	}

	if err := truth.Weigh(cfg); err != nil {
		return Truth{}, err
	}

	if t := Topology(cfg); t != nil {
		if err := save(filepath.Join(dir, "topology.json"), "topology", indented(t)); err != nil {
			return Truth{}, err
		}
	}

	return truth, save(filepath.Join(dir, "truth.json"), "truth", indented(truth))
}

// indented encodes a value as a file of JSON.
func indented(v any) func() ([]byte, error) {
	return func() ([]byte, error) {
		b, err := json.MarshalIndent(v, "", " ")
		return append(b, '\n'), err
	}
}

// save writes what is encoded to a file.
func save(path, what string, encode func() ([]byte, error)) error {
	b, err := encode()
	if err != nil {
		return fmt.Errorf("encode %s: %w", what, err)
	}

	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}

	return nil
}

func makeEmpty(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read directory: %w", err)
	}

	if len(entries) > 0 {
		return fmt.Errorf("directory %s is not empty (%s, …): give a new one", dir, entries[0].Name())
	}

	return nil
}

// Topology returns the job's topology file, nil where it writes none: a file can't
// say that ranks moved at a restart. It says what holds after the last one where
// the job writes it anew each time.
func Topology(cfg Config) *topology.File {
	if cfg.Record.NoTopology || len(cfg.Restarts) > 0 && !cfg.Record.LastTopology {
		return nil
	}

	l := newLayout(cfg.Shape, nil)
	for k, x := range cfg.Restarts {
		shape, hosts, err := moved(l, x, placement(cfg.Seed, k+1))
		if err != nil {
			return nil // such a job can't be played
		}

		l = newLayout(shape, hosts)
	}

	return l.topology()
}

// files take the ranges of a job as the ranks' own writers would: they write segments of
// the ranks from…to-1. Segments are named by the time of their first line, so the clock
// that their writers see is the job's.
type files struct {
	dir      string
	cfg      *Config
	from, to int
	ranks    []fileRank
	clock    time.Time
	line     []byte
}

// fileRank is what is kept of one rank's files.
type fileRank struct {
	w       *segment.Writer // nil where nothing is open: another shard's rank, or one that never appears
	pending []record.Record // of the step under way
	seq     [2]uint64       // per ring: light, bulk
	encoder marker.Encoder
	last    int64 // end of the last range
	emitted map[string]uint64
}

// begin opens the segments of an attempt: one identity a rank, nil for one that never appears.
func (f *files) begin(metas []*record.Meta) error {
	f.ranks = make([]fileRank, len(metas))
	f.clock = time.Unix(f.cfg.StartUnix, 0)
	for i, m := range metas {
		if m == nil || i < f.from || i >= f.to {
			continue
		}

		dir := filepath.Join(f.dir, f.cfg.Job, strconv.Itoa(i))
		w, err := segment.Open(dir, *m, segment.Options{
			Limit: f.cfg.Record.SegmentLimit, Bare: f.taskd(), Now: func() time.Time { return f.clock },
		})
		if err != nil {
			return err
		}

		f.ranks[i] = fileRank{
			w: w, emitted: map[string]uint64{},
			encoder: marker.Encoder{Process: uint32(m.PID), Thread: uint32(m.PID), Device: uint32(m.LocalRank)},
		}
		if f.taskd() && len(m.Groups) > 0 {
			if err := saveGroups(filepath.Join(dir, "parallel_group.json"), m.Groups); err != nil {
				return err
			}
		}
	}

	return nil
}

func (f *files) taskd() bool { return f.cfg.Record.Format == "taskd" }

// saveGroups writes the groups the way TaskD's adaptor dumps them (schemas/TASKD.md). It has another
// word for all ranks.
func saveGroups(path string, groups []record.Group) error {
	groups = slices.Clone(groups)
	for i := range groups {
		if groups[i].Dim == "world" {
			groups[i].Dim = "default_group"
		}
	}

	return save(path, "groups", func() ([]byte, error) { return topology.FormatParallelGroup(groups) })
}

// add keeps a range until its step is over.
func (f *files) add(rank int, r record.Record) {
	f.ranks[rank].pending = append(f.ranks[rank].pending, r)
}

// step writes the step's ranges in the order they ended, in which a recorder writes them.
func (f *files) step() error {
	for i := range f.ranks {
		k := &f.ranks[i]
		if k.w == nil {
			continue
		}

		slices.SortStableFunc(k.pending, func(a, b record.Record) int { return cmp.Compare(a.End(), b.End()) })
		for n := range k.pending {
			if err := f.write(k, &k.pending[n]); err != nil {
				return err
			}
		}

		k.pending = k.pending[:0]
	}

	return nil
}

// write writes one range, in the lines that the job's format has for it.
func (f *files) write(k *fileRank, r *record.Record) error {
	k.last = max(k.last, r.End())
	f.clock = time.Unix(0, k.last)
	if f.taskd() {
		if r.Side == record.Device {
			r.Thread = stream(r.Kind)
		}

		f.line = k.encoder.Append(f.line[:0], r)
		for line := range bytes.Lines(f.line) {
			if err := k.w.AppendLine(line); err != nil {
				return err
			}
		}

		return nil
	}

	ring := 0
	if r.Kind == record.Communication {
		ring = 1
	}

	r.Ring, r.Seq = uint32(ring+1), k.seq[ring]
	k.seq[ring]++
	k.emitted[r.Word()]++
	return k.w.AppendRecord(r)
}

// stream is the number of the stream that a kind runs on.
func stream(k record.Kind) uint64 {
	if k == record.Communication {
		return 31
	}

	return 2
}

// end writes the end lines and closes the segments of an attempt. TaskD's files have no end.
func (f *files) end() error {
	for i := range f.ranks {
		k := &f.ranks[i]
		if k.w == nil || f.taskd() {
			continue
		}

		end := record.End{At: k.last + 1, How: "closed", Emitted: k.emitted}
		if err := k.w.AppendLine(end.AppendLine(nil)); err != nil {
			return err
		}
	}

	return f.close()
}

// close closes what is open.
func (f *files) close() error {
	var errs []error
	for i := range f.ranks {
		if k := &f.ranks[i]; k.w != nil {
			errs = append(errs, k.w.Close())
			k.w = nil
		}
	}

	return errors.Join(errs...)
}
