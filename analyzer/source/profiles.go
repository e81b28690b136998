package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/laggard-dev/laggard/writer/profiles"
	"github.com/laggard-dev/laggard/writer/rollup/merge"
	"github.com/laggard-dev/laggard/writer/segment"
)

// openProfiles reads the profiles in a folder or file.
func openProfiles(ctx context.Context, at string, o Options) (Source, error) {
	made, err := o.profiles(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}

	ranks, err := segment.Walk(made.Dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open source %s: %w", at, err), made.Close())
	}

	// Topology and rank tables are looked for beside the profiles, not in what was made of them.
	dir := at
	if info, err := os.Stat(at); err == nil && !info.IsDir() {
		dir = filepath.Dir(at)
	}

	return &tree{dir: dir, ranks: ranks, merged: merge.Directories(ranks), made: made}, nil
}

// Profiles reads what lies at a path as profiles, the way that Open does; nil where it is a profiling
// directory, or is not there. The caller closes what it gets. The error of a path without any profile
// wraps profiles.ErrNone.
func Profiles(ctx context.Context, at string, o Options) (*profiles.Tree, error) {
	if o.From == "" {
		info, err := os.Stat(at)
		if err != nil {
			return nil, nil // whoever opens it next says so
		}

		if info.IsDir() {
			if ranks, err := segment.Walk(at); err != nil || len(ranks) > 0 {
				return nil, nil
			}
		}
	}

	return o.profiles(ctx, at)
}

// profiles turns foreign profiles into segments in a temporary directory, which Close removes.
func (o Options) profiles(ctx context.Context, at string) (*profiles.Tree, error) {
	return profiles.Open(ctx, at, profiles.Options{From: o.From, Job: o.Job, Workers: o.Workers, Progress: o.Progress})
}
