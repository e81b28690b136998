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
	"github.com/laggard-dev/laggard/writer/segment"
)

// Live is a source that is read again and again while it grows: what `watch`
// follows. Unlike a Source it may still be empty, or not there. A folder of other tools'
// profiles is read once, when there are some: they don't grow.
//
// It is not safe for concurrent use.
type Live struct {
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

	return &Live{scheme: scheme, at: at, o: o}, nil
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

// now returns the source as it is now: of a directory nothing is kept, whoever asks lists anew
// what is there.
func (l *Live) now(ctx context.Context) (Source, error) {
	switch {
	case l.scheme == clickHouseScheme:
		return l.connected(ctx)
	case !l.files():
		return stored{&store{dir: l.at}}, nil
	}

	dir := l.at
	if l.made != nil {
		dir = l.made.Dir
	}

	ranks, err := segment.Walk(dir)
	if err != nil {
		return nil, fmt.Errorf("list jobs of %s: %w", dir, err)
	}

	return &tree{dir: dir, ranks: ranks, made: l.made}, nil
}

// connected returns the database, which is connected to at the first use, and again after an error
// of connecting.
func (l *Live) connected(ctx context.Context) (Source, error) {
	if l.db == nil {
		db, err := openClickHouse(ctx, l.at, l.o)
		if err != nil {
			return nil, err
		}

		l.db = db
	}

	return stored{l.db}, nil
}

// files reports whether the source is a directory of segments or profiles, or may become one.
func (l *Live) files() bool { return l.scheme == "" && (l.made != nil || !isStore(l.at)) }

// None says why the last Jobs found nothing in a folder, nil where that isn't known.
func (l *Live) None() error { return l.none }

// Jobs returns the names of the jobs that are there now, sorted; none is no error.
func (l *Live) Jobs(ctx context.Context) ([]string, error) {
	if l.Missing() {
		return nil, nil
	}

	// A folder that is no profiling directory yet may become one, or get profiles: it is asked again
	// with each look until there are some.
	if l.files() && l.made == nil {
		l.made, l.none = Profiles(ctx, l.at, l.o)
		if l.none != nil && (l.o.From != "" || !errors.Is(l.none, profiles.ErrNone)) {
			return nil, fmt.Errorf("list jobs of %s: %w", l.at, l.none)
		}
	}

	s, err := l.now(ctx)
	if err != nil {
		return nil, err
	}

	return s.Jobs(ctx)
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

// Verdicts returns the newest row of each node, group and finding of a job, of those newer than
// since, from the table of verdicts, which ClickHouse alone has for many watchers.
func (l *Live) Verdicts(ctx context.Context, job string, since int64) ([]row.Verdict, error) {
	if l.scheme != clickHouseScheme {
		return nil, fmt.Errorf("read verdicts of %s: watchers share a ClickHouse store, and this is none", Redact(l.at))
	}

	if _, err := l.connected(ctx); err != nil {
		return nil, err
	}

	where := fmt.Sprintf("at_ns > %d", since)
	return selectRows[row.Verdict](ctx, l.db, row.VerdictsTable, job, where, "ORDER BY at_ns DESC, step DESC LIMIT 1 BY node, `group`, finding")
}
