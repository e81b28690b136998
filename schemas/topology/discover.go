package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/laggard-dev/laggard/schemas/record"
)

// maxRanks bounds the rank directories that Discover looks into. The largest jobs have 100,000.
const maxRanks = 1 << 17

// discover looks for the topology of one job in a profiling tree: topology.json in
// the job's directory (beside the ranks) or above it (beside the jobs),
// parallel_group.json in the rank directories, hccl.json beside the ranks or in
// them. root is the profiling directory, the job's or a rank's. What topology.json
// says wins over the others, node by node and group by group. servers is what rank tables
// say of it: they may call a node by another name than the cluster does. Either is nil for nothing.
//
// A file that is there and can't be used is part of the error (joined, each names
// the file, the key and what to do); what the others say is returned all the same.
func discover(root, job string) (all, servers *File, err error) {
	dir := jobDir(root, job)
	var errs []error
	file := first(&errs, Load, filepath.Join(dir, FileName), filepath.Join(filepath.Dir(dir), FileName))
	ranks, err := rankDirs(dir)
	if err != nil {
		errs = append(errs, fmt.Errorf("look for %s: %w", ParallelGroupFile, err))
	}

	groups := parallelGroups(&errs, ranks)
	tables := []string{filepath.Join(dir, RankTableFile), filepath.Join(filepath.Dir(dir), RankTableFile)}
	for _, rank := range ranks {
		tables = append(tables, filepath.Join(rank, RankTableFile))
	}

	servers = first(&errs, readRankTable, tables...)
	return Merge(file, groups, servers), servers, errors.Join(errs...)
}

// DiscoverAll is discover for a job that lies in several directories; what the first of them
// knows wins. all is what is known of the job, servers the part of it that rank tables say; nil
// is nothing.
func DiscoverAll(root string, jobs []string) (all, servers *File, err error) {
	var errs []error
	for _, job := range jobs {
		found, tables, err := discover(root, job)
		errs = append(errs, err)
		all, servers = Merge(all, found), Merge(servers, tables)
	}

	return all, servers, errors.Join(errs...)
}

// jobDir returns the job's directory under, at or above root.
func jobDir(root, job string) string {
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}

	if job != "" {
		if st, err := os.Lstat(filepath.Join(root, job)); err == nil && st.IsDir() {
			return filepath.Join(root, job)
		}
	}

	if filepath.Base(root) != job && filepath.Base(filepath.Dir(root)) == job {
		return filepath.Dir(root)
	}

	return root
}

// first loads the first of the paths that exists.
func first(errs *[]error, load func(string) (*File, error), paths ...string) *File {
	for _, p := range paths {
		f, err := load(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			*errs = append(*errs, err)
			continue
		}

		return f
	}

	return nil
}

// parallelGroups reads the parallel_group.json of every rank directory.
func parallelGroups(errs *[]error, ranks []string) *File {
	var all []record.Group
	seen := map[string]bool{}
	for _, rank := range ranks {
		groups, err := ParallelGroup(filepath.Join(rank, ParallelGroupFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			*errs = append(*errs, err)
			continue
		}

		for _, g := range groups { // each group stands in the file of every member
			if key := g.Dim + ":" + g.Name + ":" + setKey(g.Ranks); !seen[key] {
				seen[key] = true
				all = append(all, g)
			}
		}
	}

	if len(all) == 0 {
		return nil
	}

	return fromGroups(all)
}

// rankDirs returns the directories of ranks, sorted by rank.
func rankDirs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	var ranks []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err == nil && e.IsDir() && n >= 0 && n < maxWorld && strconv.Itoa(n) == e.Name() && len(ranks) < maxRanks {
			ranks = append(ranks, n)
		}
	}

	slices.Sort(ranks)
	paths := make([]string, len(ranks))
	for i, r := range ranks {
		paths[i] = filepath.Join(dir, strconv.Itoa(r))
	}

	return paths, nil
}
