// Package merge merges the directories of one job. Without a job name TaskD names a
// job's directory default_task_id_<unix seconds>, by the first save of each process: one
// job lies in as many directories as it has processes.
//
// Invariant: what is merged fits. No two directories of a job hold the same
// rank at the same time, all of it overlaps in time, and no two that name their
// communicators are joined without sharing one. Where the files leave a choice (two
// jobs beside each other, the same ranks, no communicator named) nothing is merged:
// a job in pieces is better than two jobs in one.
//
// Caveats: a job is named by its earliest directory. A launch that began when all
// processes of the one before had ended is another job: nothing ties them. Only
// the beginning of each rank's oldest segment is read, for communicators, and the
// end of its newest, for the time.
package merge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/writer/segment"
)

// prefix begins the directory names that are no job's name.
const prefix = "default_task_id_"

// Job is one job directory without a job's name, and then all that were joined to it.
type Job struct {
	Dirs []string // the earliest first: its name is the job's

	number      int64 // in the first's name
	ranks       map[int]extent
	all         extent
	communicate map[string]bool // communicators that it names
	why         []string        // what joined its directories
}

// Result is what Directories found.
type Result struct {
	Jobs []*Job // that have more than one directory
	// Doubtful are directories of which it is not certain whose they are.
	Doubtful []string
}

// Directories gives the ranks of such directories the name of the job that they
// belong to, in place. Directories with another name are left as they are. A file
// that can't be read tells nothing: its rank may stay alone.
func Directories(ranks []segment.RankDir) Result {
	pieces := look(ranks)
	if len(pieces) < 2 {
		return Result{}
	}

	r := result(byTime(byCommunicator(pieces)))
	name := map[string]string{}
	for _, j := range r.Jobs {
		for _, dir := range j.Dirs {
			name[dir] = j.Dirs[0]
		}
	}

	for i := range ranks {
		if n, ok := name[ranks[i].Job]; ok {
			ranks[i].Job = n
		}
	}

	return r
}

// Dirs returns the directories of a job, by its name.
func (r Result) Dirs(job string) []string {
	for _, j := range r.Jobs {
		if j.Dirs[0] == job {
			return j.Dirs
		}
	}

	return []string{job}
}

// Notes says in sentences what was done with a job's directories, with "" with all.
func (r Result) Notes(job string) []string {
	var notes []string
	for _, j := range r.Jobs {
		if job == "" || j.Dirs[0] == job {
			notes = append(notes, fmt.Sprintf("%d directories %s… are one job of %d ranks, by %s: put together as %s", len(j.Dirs), prefix, len(j.ranks), strings.Join(j.why, ", then "), j.Dirs[0]))
		}
	}

	if n := len(r.Doubtful); n > 0 && (job == "" || slices.Contains(r.Doubtful, job)) {
		notes = append(notes, fmt.Sprintf("%d directories %s… overlap in time and could be of several jobs: no communicator tells whose they are, so each is a job of its own; set MINDX_TASK_ID or LAGGARD_JOB for the next run", n, prefix))
	}

	return notes
}

// extent is a stretch of time, ns since the Unix epoch.
type extent struct{ from, to int64 }

// overlaps reports whether two extents have a time in common.
func (e extent) overlaps(o extent) bool { return e.from <= o.to && o.from <= e.to }

// join is the extent from the first to the last of both.
func (e extent) join(o extent) extent { return extent{min(e.from, o.from), max(e.to, o.to)} }

// look reads what the directories say of themselves.
func look(ranks []segment.RankDir) []*Job {
	byDir := map[string]*Job{}
	var pieces []*Job
	for _, r := range ranks {
		digits, ok := strings.CutPrefix(r.Job, prefix)
		number, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil {
			continue
		}

		when, names, ok := read(r)
		if !ok {
			continue
		}

		p := byDir[r.Job]
		if p == nil {
			p = &Job{Dirs: []string{r.Job}, number: number, ranks: map[int]extent{}, all: when, communicate: names}
			byDir[r.Job] = p
			pieces = append(pieces, p)
		}

		p.ranks[r.Rank], p.all = when, p.all.join(when)
		maps.Copy(p.communicate, names)
	}

	slices.SortFunc(pieces, func(a, b *Job) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.Dirs[0], b.Dirs[0]))
	})
	return pieces
}

// exclude reports whether two of the pieces hold a rank at the same time: they
// can't be of one job.
func exclude(pieces []*Job) bool {
	type stay struct {
		rank int
		when extent
	}
	var stays []stay
	for _, p := range pieces {
		for rank, when := range p.ranks {
			stays = append(stays, stay{rank, when})
		}
	}

	slices.SortFunc(stays, func(a, b stay) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.when.from, b.when.from)) })
	for i := 1; i < len(stays); i++ {
		if stays[i].rank == stays[i-1].rank && stays[i].when.overlaps(stays[i-1].when) {
			return true
		}
	}

	return false
}

// restarts reports whether all ranks of p were in o before: its processes took
// the places of such as had ended.
func (p *Job) restarts(o *Job) bool {
	for rank, when := range p.ranks {
		if before, ok := o.ranks[rank]; !ok || before.to >= when.from {
			return false
		}
	}

	return true
}

// absorb makes o a part of p, which is the earlier one.
func (p *Job) absorb(o *Job) {
	p.Dirs = append(p.Dirs, o.Dirs...)
	for rank, when := range o.ranks {
		if before, ok := p.ranks[rank]; ok {
			when = when.join(before)
		}

		p.ranks[rank] = when
	}

	maps.Copy(p.communicate, o.communicate)
	p.all = p.all.join(o.all)
	for _, reason := range o.why {
		p.because(reason)
	}
}

// because notes what joined a piece.
func (p *Job) because(reason string) {
	if !slices.Contains(p.why, reason) {
		p.why = append(p.why, reason)
	}
}

const (
	byCommunicators = "communicators"
	byTimeAndRanks  = "time and ranks"
)

// byCommunicator joins what shares one. HCCL's names hold an address, a port and a
// time: no two jobs have the same. A name that pieces have which exclude each
// other is none of these and says nothing.
func byCommunicator(pieces []*Job) []*Job {
	holders := map[string][]*Job{}
	for _, p := range pieces {
		for name := range p.communicate {
			holders[name] = append(holders[name], p)
		}
	}

	edges := map[*Job][]*Job{}
	for name, list := range holders {
		if exclude(list) {
			for _, p := range list {
				delete(p.communicate, name)
			}

			continue
		}

		for _, p := range list[1:] {
			edges[list[0]] = append(edges[list[0]], p)
			edges[p] = append(edges[p], list[0])
		}
	}

	sums, _ := unite(pieces, edges, byCommunicators)
	return sums
}

// byTime joins what can only belong together: what overlaps in time and has other
// ranks, where none of the candidates exclude each other. It also returns the
// directories that are left in doubt.
func byTime(pieces []*Job) (sums []*Job, doubtful []string) {
	candidates := map[*Job][]*Job{}
	for i, p := range pieces {
		for _, o := range pieces[i+1:] {
			if p.all.overlaps(o.all) && !exclude([]*Job{p, o}) && !strangers(p, o) {
				candidates[p] = append(candidates[p], o)
				candidates[o] = append(candidates[o], p)
			}
		}
	}

	agrees := map[*Job]bool{}
	for _, p := range pieces {
		agrees[p] = !exclude(candidates[p])
	}

	certain := map[*Job][]*Job{}
	for _, p := range pieces {
		for _, o := range candidates[p] {
			if agrees[p] && agrees[o] {
				certain[p] = append(certain[p], o)
			}
		}

		if len(candidates[p]) > 0 && len(certain[p]) == 0 {
			doubtful = append(doubtful, p.Dirs...)
		}
	}

	sums, left := unite(pieces, certain, byTimeAndRanks)
	return sums, append(doubtful, left...)
}

// strangers are two that both name communicators and share none. Where one came
// later in the place of the other's processes that says nothing: new processes
// make new communicators.
func strangers(p, o *Job) bool {
	return len(p.communicate) > 0 && len(o.communicate) > 0 && !p.restarts(o) && !o.restarts(p)
}

// unite joins the pieces that edges connect, unless some of them exclude each
// other; these are left as they are, and returned.
func unite(pieces []*Job, edges map[*Job][]*Job, by string) (sums []*Job, left []string) {
	seen := map[*Job]bool{}
	for _, p := range pieces { // the earliest first
		if seen[p] {
			continue
		}

		var all []*Job
		for queue := []*Job{p}; len(queue) > 0; {
			next := queue[0]
			queue = queue[1:]
			if !seen[next] {
				seen[next] = true
				all = append(all, next)
				queue = append(queue, edges[next]...)
			}
		}

		if exclude(all) {
			for _, o := range all {
				sums, left = append(sums, o), append(left, o.Dirs...)
			}

			continue
		}

		for _, o := range all[1:] {
			p.absorb(o)
		}

		if len(all) > 1 {
			p.because(by)
		}

		sums = append(sums, p)
	}

	return sums, left
}

// result makes jobs of what was joined.
func result(sums []*Job, doubtful []string) Result {
	r := Result{Doubtful: doubtful}
	for _, p := range sums {
		if len(p.Dirs) > 1 {
			slices.SortFunc(p.Dirs, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
			p.communicate = nil // it may be large, and has told what it can
			r.Jobs = append(r.Jobs, p)
		}
	}

	slices.Sort(r.Doubtful)
	return r
}
