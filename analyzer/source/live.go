package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/profiles"
)

// Live is a source that is read again and again while it grows: what `watch`
// follows. Unlike a Source it may still be empty, or not there. A folder of other tools'
// profiles is read once, when there are some: they don't grow.
//
// It is not safe for concurrent use.
type Live struct {
	spec       string
	scheme, at string // as splitSpec tells them
	o          Options
	db         *database      // kept open
	made       *profiles.Tree // of a folder of profiles, as it was when it was found
	none       error          // why there is none in it
}

// OpenLive returns the live source that spec names, as Open takes it. Nothing is
// read yet; a spec that can never be one is an error.
func OpenLive(spec string, o Options) (*Live, error) {
	scheme, at, err := splitSpec(spec)
	if err != nil {
		return nil, err
	}

	return &Live{spec: spec, scheme: scheme, at: at, o: o}, nil
}

// Close frees connections.
func (l *Live) Close() error {
	var err error
	if l.db != nil {
		err = l.db.Close()
	}

	if l.made != nil {
		err = errors.Join(err, l.made.Close())
	}

	return err
}

// Missing reports whether the source is a directory that is not there, or not there yet.
func (l *Live) Missing() bool {
	_, err := os.Stat(l.at)
	return l.scheme != clickHouseScheme && l.made == nil && errors.Is(err, fs.ErrNotExist)
}

// now returns the source as it is now. A database is connected to at the first use, and again
// after an error of connecting.
func (l *Live) now(ctx context.Context) (Source, error) {
	if l.scheme == clickHouseScheme {
		if l.db != nil {
			return l.db, nil
		}

		db, err := openClickHouse(ctx, l.at, l.o)
		if err != nil {
			return nil, err
		}

		l.db = db
		return db, nil
	}

	// Of a directory nothing is kept: whoever asks lists anew what is there.
	switch {
	case l.made != nil:
		return &tree{dir: l.made.Dir, made: l.made}, nil
	case l.scheme == parquetScheme || isStore(l.at):
		return &store{dir: l.at}, nil
	}

	return &tree{dir: l.at}, nil
}

// None says why the last Jobs found nothing in a folder, nil where that isn't known.
func (l *Live) None() error { return l.none }

// Jobs returns the names of the jobs that are there now, sorted; none is no error.
func (l *Live) Jobs(ctx context.Context) ([]string, error) {
	s, err := l.now(ctx)
	if err != nil || l.Missing() {
		return nil, err
	}

	// A folder that is no profiling directory yet may become one, or get profiles: it is asked again
	// with each look until there are some.
	if t, ok := s.(*tree); ok && l.made == nil {
		l.made, l.none = Profiles(ctx, t.dir, l.o)
		if l.none != nil && (l.o.From != "" || !errors.Is(l.none, profiles.ErrNone)) {
			return nil, fmt.Errorf("list jobs of %s: %w", t.dir, l.none)
		}

		if s, err = l.now(ctx); err != nil {
			return nil, err
		}
	}

	return s.listJobs(ctx)
}

// Newest returns about when the newest piece of the job came, the zero time when
// there is none.
func (l *Live) Newest(ctx context.Context, job string) (time.Time, error) {
	s, err := l.now(ctx)
	if err != nil {
		return time.Time{}, err
	}

	return s.newest(ctx, job)
}

// Follow begins to read a job where cursor says, from its beginning with nil.
func (l *Live) Follow(ctx context.Context, job string, cursor []byte) (feed.Reader, error) {
	s, err := l.now(ctx)
	if err != nil {
		return nil, err
	}

	return s.follow(l.o, job, cursor)
}

// Watchers returns the newest row of each watcher that said since then that it is there.
func (l *Live) Watchers(ctx context.Context, since int64) ([]row.Verdict, error) {
	return l.verdicts(ctx, "", fmt.Sprintf("at_ns > %d", since))
}

// Verdicts returns the newest row of each node, group and finding of a job.
func (l *Live) Verdicts(ctx context.Context, job string) ([]row.Verdict, error) {
	return l.verdicts(ctx, job, "")
}

// verdicts reads the table of verdicts, which ClickHouse alone has for many watchers.
func (l *Live) verdicts(ctx context.Context, job, where string) ([]row.Verdict, error) {
	s, err := l.now(ctx)
	if err != nil {
		return nil, err
	}

	db, ok := s.(*database)
	if !ok {
		return nil, fmt.Errorf("read verdicts of %s: watchers share a ClickHouse store, and this is none", Redact(l.spec))
	}

	return selectRows[row.Verdict](ctx, db, row.VerdictsTable, job, where, "ORDER BY at_ns DESC, step DESC LIMIT 1 BY node, `group`, finding")
}
