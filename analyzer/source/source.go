// Package source reads the per-step rows of one job from where they are: a
// profiling directory (laggard's own segments or TaskD's marker files), a folder of
// profiles that other tools wrote, a Parquet store or a ClickHouse database.
//
// Invariant: the same job gives the same rows whichever of them it is read
// from, so a verdict never depends on the source. Raw records are never pulled
// from a store: a row is one step of one rank.
//
// Caveat: rows come in no promised order and a row may come twice (a store that
// a doubtful insert was repeated into); the key of a row decides, not its place.
// Rows are handed over by pointer and reused: who takes them copies what it keeps.
//
// Files, stores and names in them are hostile input: bounded, no symlink is
// followed below the given directory, nothing panics.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/analyzer/feed"
	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/writer/profiles"
)

// Schemes of stores in the names of sources.
const (
	parquetScheme    = "parquet"
	clickHouseScheme = "clickhouse"
)

// Options say how to open and read a source. The zero value is ready to use.
type Options struct {
	// Topology is the path of a topology file; "" looks for one where the source
	// is a directory, and takes the groups of the ranks otherwise.
	Topology string
	// From is the format of foreign profiles (profiles.Words) that the source is to be read
	// as; "" tells it by content, and prefers a profiling directory.
	From string
	// Job names the job of foreign profiles; "" is the folder's name.
	Job string
	// Node is this machine's name in the cluster, for TaskD's files on a disk of its
	// own; "" is unknown.
	Node string
	// Workers is how many files, ranks or queries are read at a time; 0 means
	// GOMAXPROCS.
	Workers int
	// NoCommunications leaves the communications table out.
	NoCommunications bool
	// Progress is called after each part (rank, span of a file, range of ranks) that was
	// read, one call after the other; nil is silent.
	Progress func(done, total int)
}

// workers is how many parts are read at a time: reading is bound by the processor, since rows are
// decoded and not only fetched.
func (o Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}

	return runtime.GOMAXPROCS(0)
}

// progress tells whoever wants to know; a caller need not.
func (o Options) progress(done, total int) {
	if o.Progress != nil {
		o.Progress(done, total)
	}
}

// Info is what a Load learnt besides the rows.
type Info struct {
	Job string
	// Topology is the topology file given or found; nil where there is none, and
	// the groups of the ranks' rows are all that is known.
	Topology *topology.File

	Steps int // rows of steps
	Lines int // lines read (files)
	// Unknown counts lines that are neither laggard's nor TaskD's, Torn files that
	// end in the middle of a line.
	Unknown, Torn int
	// Notes are sentences for a person: what was not understood or left out.
	Notes []string
	// Damaged counts the files of which something could not be read.
	Damaged int
}

// Source is an opened source of jobs.
type Source interface {
	// Jobs returns the names of the jobs, sorted; none is no error.
	Jobs(ctx context.Context) ([]string, error)
	// Load hands over one job, "" the only one: its ranks, steps and communications, in parts, one
	// after the other. They are used again when take returns.
	Load(ctx context.Context, job string, take func(*row.Rows), o Options) (Info, error)
	// Records hands over the identities and the raw ranges of a job, in parts, one after
	// the other; with one worker a rank's after those of the ranks before it. Rows that
	// take keeps it must copy. A store has the kinds that --records selected.
	Records(ctx context.Context, job string, o Options, take func([]row.Rank, []row.Record) error) error
	// Close frees connections. The Source is of no use afterwards.
	Close() error

	// Of a source that grows, as a Live asks it: newest is about when the newest piece of a job
	// came, the zero time when there is none; follow begins to read a job where an earlier
	// reader's cursor says, from its beginning with nil.
	newest(ctx context.Context, job string) (time.Time, error)
	follow(o Options, job string, from []byte) (feed.Reader, error)
}

// noSuchJob says that a job is not named and there are several, or that the named one is not
// there: it names the source, its jobs and the flag.
func noSuchJob(source, job string, jobs []string) error {
	const most = 20
	var words []string
	for _, j := range jobs[:min(len(jobs), most)] {
		words = append(words, quoteIfOdd(j))
	}

	text := strings.Join(words, ", ")
	if left := len(jobs) - len(words); left > 0 {
		text += fmt.Sprintf(" and %d more", left)
	}

	if job == "" {
		return fmt.Errorf("%s holds %d jobs: %s; choose one with --job", source, len(jobs), text)
	}

	return fmt.Errorf("%s holds no job %s; it holds %s", source, quoteIfOdd(job), text)
}

// quoteIfOdd quotes s when it holds anything but plain printable characters.
func quoteIfOdd(s string) string {
	odd := func(r rune) bool { return r <= ' ' || r == ',' || r == '"' || r == 0x7f || r == '\uFFFD' }
	if s == "" || strings.ContainsFunc(s, odd) {
		return fmt.Sprintf("%q", s)
	}

	return s
}

// pick returns the job to load: the named one when it is there, the only one
// when none is named, else an error that names those that are there. name is the source's.
func pick(ctx context.Context, s Source, name, job string) (string, error) {
	jobs, err := s.Jobs(ctx)
	switch {
	case err != nil:
		return "", err
	case len(jobs) == 0:
		return "", fmt.Errorf("list jobs of %s: no job in it: fill it with `laggard ingest SOURCE --to STORE` or `laggard agent --store STORE`", name)
	case job != "" && slices.Contains(jobs, job):
		return job, nil
	case job == "" && len(jobs) == 1:
		return jobs[0], nil
	}

	return "", noSuchJob(name, job, jobs)
}

// Open opens what spec names: a directory, a file or folder of profiles, `parquet:DIR` or
// `clickhouse://user@host:port/db`. A plain directory that holds a Parquet store
// is opened as one. An error names the object, the cause and what to do.
func Open(ctx context.Context, spec string, o Options) (Source, error) {
	scheme, at, err := splitSpec(spec)
	switch {
	case err != nil:
		return nil, err
	case scheme == clickHouseScheme:
		db, err := openClickHouse(ctx, at, o)
		if err != nil {
			return nil, err
		}

		return stored{db}, nil
	case scheme == parquetScheme:
		return openParquet(at)
	}

	// Who names a format means profiles, even where the folder would pass for a profiling directory.
	if o.From != "" {
		return openProfiles(ctx, spec, o)
	}

	if err := checkDir("source", spec); err != nil {
		if info, stat := os.Stat(spec); stat == nil && info.Mode().IsRegular() {
			return orProfiles(ctx, spec, o, err)
		}

		return nil, err
	}

	if isStore(spec) {
		return openParquet(spec)
	}

	s, err := openFiles(spec)
	if errors.Is(err, errNoRank) {
		return orProfiles(ctx, spec, o, err)
	}

	return s, err
}

// splitSpec returns the scheme of what spec names, "" of a directory or file, and where that is.
func splitSpec(spec string) (scheme, at string, err error) {
	scheme, rest, found := strings.Cut(spec, ":")
	switch {
	case spec == "":
		return "", "", errors.New("open source: no name given; " + forms)
	case found && scheme == clickHouseScheme:
		return scheme, spec, nil
	case found && scheme == parquetScheme:
		return scheme, strings.TrimPrefix(rest, "//"), nil
	case strings.Contains(spec, "://"):
		return "", "", fmt.Errorf("open source %s: unknown kind %q; %s", Redact(spec), scheme, forms)
	}

	return "", spec, nil
}

// orProfiles opens what is nothing else, for the reason why, as profiles.
func orProfiles(ctx context.Context, at string, o Options, why error) (Source, error) {
	s, err := openProfiles(ctx, at, o)
	if errors.Is(err, profiles.ErrNone) {
		return nil, fmt.Errorf("%w; %w", why, err)
	}

	return s, err
}

const forms = "SOURCE is a directory, a folder or file of profiles, parquet:DIR or clickhouse://user@host:9000/db"

// checkDir returns an error a person can act on when path is no directory that
// can be listed.
func checkDir(what, path string) error {
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		_, err = d.Readdirnames(1)
		err = errors.Join(err, d.Close())
	}

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("open %s %s: no such directory: check the path; %s", what, path, forms)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("open %s %s: a file, not a directory: give the directory that holds it; %s", what, path, forms)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("open %s %s: no permission to read it: run as its owner, or give this user read and execute permission", what, path)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("open %s %s: the directory is empty: give a folder of profiles, the profiling directory of a job (LAGGARD_DIR, default /user/cluster-info/profiling), or a store", what, path)
	case err != nil:
		return fmt.Errorf("open %s: %w", what, err)
	}

	return nil
}

// isStore reports whether dir is a Parquet store: it has a folder of a table
// with a hive folder of a job in it.
func isStore(dir string) bool {
	for _, table := range []string{row.StepsTable, row.RanksTable} {
		if folders, _ := layout.Folders(dir, table); len(folders) > 0 {
			return true
		}
	}

	return false
}
