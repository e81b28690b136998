package profiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// ErrNone is returned, wrapped, when there is no profile in a folder.
var ErrNone = errors.New("no profile in it")

// Options of Open. The zero value is ready.
type Options struct {
	// From is the name of the only format to try; "" is all.
	From string
	// Job is the job's name; "" is the folder's.
	Job string
	// Workers is how many profiles are read at a time; 0 is GOMAXPROCS.
	Workers int
	// Progress is called after each profile, from one goroutine at a time; nil is silent.
	Progress func(done, total int)
}

// Tree is a folder of profiles as a profiling directory.
type Tree struct {
	// Dir is the profiling directory, <Dir>/<Job>/<rank>/<unix seconds>: a temporary folder, which
	// Close removes, or the next Open where this process is killed.
	Dir, Job string
	lock     *os.File
	// Format is that of the profiles, Profiles their number, Ranks that of the ranks in them.
	Format          *format
	Profiles, Ranks int
	// Unread is what could not be read, Notes say what was made of files that don't say all.
	Unread, Notes []Problem
}

// Close removes what Open made.
func (t *Tree) Close() error { return errors.Join(os.RemoveAll(t.Dir), t.lock.Close()) }

// Sentences tells problems, each cause once, with the first file that it is true of.
func Sentences(problems []Problem) (words []string) {
	more := map[string]int{}
	for _, p := range problems {
		more[p.Cause]++
	}

	for _, p := range problems {
		switch n := more[p.Cause]; {
		case n == 1:
			words = append(words, p.String())
		case n > 1:
			words = append(words, fmt.Sprintf("%s and %d more: %s", p.Path, n-1, p.Cause))
		}

		more[p.Cause] = 0
	}

	return words
}

// Open reads the profiles below a folder, or the one in a file, into a profiling directory.
// The error of a folder without any wraps ErrNone and says what was found instead.
func Open(ctx context.Context, at string, o Options) (*Tree, error) {
	f, err := openFolder(at)
	if err != nil {
		return nil, err
	}
	defer f.root.Close()
	format, leads, err := f.find(o.From)
	if err != nil {
		return nil, fmt.Errorf("read profiles in %s: %w", at, err)
	}

	t := &Tree{Format: format, Job: cmp.Or(o.Job, jobName(at))}
	misfits, others := f.misfits(format, leads)
	t.Unread, t.Notes = append(f.notes, misfits...), others
	if t.Dir, t.lock, err = room(); err != nil {
		return nil, fmt.Errorf("make room for the ranges of %s: %w", at, err)
	}

	if err := t.read(ctx, leads, o); err != nil {
		return nil, errors.Join(fmt.Errorf("read profiles in %s: %w", at, err), t.Close())
	}

	return t, nil
}

// find returns the files that lead profiles, all of one format.
func (f *folder) find(from string) (*format, []*profileFile, error) {
	formats := formats()
	if from != "" {
		i := slices.IndexFunc(formats, func(x format) bool { return x.Name == from })
		if i < 0 {
			return nil, nil, fmt.Errorf("unknown format %q: want one of %s", from, strings.Join(Words(), ", "))
		}

		formats = formats[i : i+1]
	}

	leads := make([][]*profileFile, len(formats))
	for _, file := range f.files {
		i := slices.IndexFunc(formats, func(x format) bool { return x.Leads(file) })
		if i >= 0 {
			leads[i] = append(leads[i], file)
		}

		file.head = nil // read to tell the format
	}

	found := -1
	for i := range formats {
		switch {
		case len(leads[i]) == 0:
		case found < 0:
			found = i
		default:
			return nil, nil, fmt.Errorf("it holds profiles of two formats: %s is %s, %s is %s: choose one with --from %s or --from %s, or give a folder of one",
				leads[found][0].Path, formats[found].What, leads[i][0].Path, formats[i].What, formats[found].Name, formats[i].Name)
		}
	}

	if found < 0 {
		return nil, nil, f.none(from)
	}

	return &formats[found], leads[found], nil
}

// digits tell the files of ranks apart that are otherwise called the same.
var digits = regexp.MustCompile(`\d+`)

// misfits tells of files that are called like those that lead a profile and are none, and of
// others that only end as the format's files do: those may be anything.
func (f *folder) misfits(format *format, leads []*profileFile) (all, others []Problem) {
	lead, called, extensions, whole := map[*profileFile]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, ending := range format.Endings {
		extensions[ending] = true
	}

	for _, l := range leads {
		lead[l], called[digits.ReplaceAllString(l.name, "#")], extensions[path.Ext(l.name)], whole[path.Dir(l.name)] = true, true, true, true
	}

	for _, file := range f.files {
		alike := extensions[path.Ext(file.name)]
		switch {
		case lead[file]:
		case file.Size == 0 && alike:
			all = append(all, Problem{file.Path, "it is empty"})
		case format.Endings == nil && whole[path.Dir(file.name)]: // one of the several of which another leads
		case called[digits.ReplaceAllString(file.name, "#")]:
			all = append(all, Problem{file.Path, "it is called like others and is none of the " + format.What + ": it is damaged, or something else"})
		case alike && format.Endings != nil:
			others = append(others, Problem{file.Path, "passed over, it is none of the " + format.What + ": something else, or a damaged one"})
		}
	}

	for _, file := range f.links {
		if extensions[path.Ext(file.name)] {
			all = append(all, Problem{file.Path, notFollowed})
		}
	}

	return all, others
}

// notFollowed is the problem with a link: it may lead anywhere, and the folder may be somebody else's.
const notFollowed = "a symbolic link, which is not followed"

// none says what there is instead of profiles.
func (f *folder) none(from string) error {
	var what []string
	for _, x := range formats() {
		if from == "" || x.Name == from {
			what = append(what, x.What)
		}
	}

	var there []string
	for _, p := range f.notes[:min(len(f.notes), 1)] {
		there = append(there, p.String())
	}

	if len(f.files) == 0 {
		there = append(there, "no file at all")
	} else {
		there = append(there, fmt.Sprintf("none of its %d files (the first is %s) is one of: %s", len(f.files), f.files[0].Path, strings.Join(what, "; ")))
	}

	if i := slices.IndexFunc(f.files, func(x *profileFile) bool { return x.Size == 0 }); i >= 0 {
		there = append(there, f.files[i].Path+" is empty")
	}

	if len(f.links) > 0 {
		there = append(there, f.links[0].Path+": "+notFollowed)
	}

	return fmt.Errorf("%w: %s", ErrNone, strings.Join(there, "; "))
}

// read reads the profiles, several at a time, and puts their segments in order.
func (t *Tree) read(ctx context.Context, leads []*profileFile, o Options) error {
	all := make([]*output, len(leads))
	workers := map[string]int{}
	for _, file := range leads { // sorted by name
		if w := workerOf(file.name); workers[w] == 0 {
			workers[w] = len(workers) + 1
		}
	}

	var told sync.Mutex // guards done
	done := 0
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, cmp.Or(o.Workers, runtime.GOMAXPROCS(0))))
	for i, file := range leads {
		g.Go(func() (err error) {
			all[i], err = t.profile(ctx, file, workers[workerOf(file.name)]-1)
			told.Lock()
			defer told.Unlock()
			if done++; err == nil && o.Progress != nil {
				o.Progress(done, len(leads))
			}

			return err
		})
	}

	if err := g.Wait(); err != nil {
		return err
	}

	return t.arrange(all)
}

// profile reads one profile and writes its ranges. What can't be read of it is told in it.
func (t *Tree) profile(ctx context.Context, file *profileFile, worker int) (*output, error) {
	out := &output{file: file, worker: worker}
	var err error
	if out.hash, err = file.hash(ctx); err == nil {
		err = t.Format.Read(ctx, file, out)
	}

	if ctx.Err() != nil {
		return nil, ctx.Err()
	}

	if err != nil {
		out.Unread(file.Path, "%s", cause(err))
	}

	if out.beyond > 0 {
		out.Unread(file.Path, "it holds more than %d ranges: %d are left out", mostRanges, out.beyond)
	}

	for i, r := range out.ranks {
		if r.Rank < 0 && len(out.ranks) > 1 {
			r.Rank = worker*len(out.ranks) + i
			out.Note(file.Path, "it tells no rank of its %d processes: they are numbered by their devices, and files by the order of names", len(out.ranks))
		}

		if len(r.ranges) == 0 && (r.Partly || r.computed.to <= r.computed.from) {
			out.Unread(file.Path, "no range of the job in it")
			continue
		}

		if err := t.write(r); err != nil {
			return nil, err
		}

		r.ranges, r.Groups = nil, nil // what is written is not held
	}

	out.ranks = slices.DeleteFunc(out.ranks, func(r *rankOutput) bool { return r.paths == nil })
	return out, nil
}

// jobName names a job for the folder that its profiles lie in.
func jobName(at string) string {
	abs, err := filepath.Abs(at)
	if err != nil {
		abs = at
	}

	name := strings.TrimLeft(filepath.Base(abs), ".")
	if info, err := os.Stat(abs); err == nil && !info.IsDir() {
		name, _, _ = strings.Cut(name, ".")
	}

	return cmp.Or(strings.Trim(name, `/\`), "profiles")
}
