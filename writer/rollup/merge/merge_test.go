package merge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/marker"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
)

const t0 = 1753000000

// process is one rank's process in a test: it writes a step every second from
// second `from` to `to`, and a communication in each when a communicator is named.
type process struct {
	dir      int // of default_task_id_<t0 + dir>
	rank     int
	from, to int
	comm     string
}

// write makes the tree of the processes and returns its rank directories.
func write(t *testing.T, processes []process) []segment.RankDir {
	t.Helper()
	root := t.TempDir()
	for _, p := range processes {
		dir := filepath.Join(root, fmt.Sprint(prefix, t0+p.dir), fmt.Sprint(p.rank))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}

		var b []byte
		id := uint64(0)
		add := func(at time.Duration, name, domain string) {
			id++
			m := marker.Marker{Kind: marker.KindMarker, Flag: marker.Start, Timestamp: uint64(t0*int64(time.Second) + int64(at)), ID: id, Process: 7, Thread: 7, Device: 7, Stream: 7}
			m.Name, m.Domain = []byte(name), []byte(domain)
			b = marker.Append(b, &m)
			m.Flag, m.Timestamp, m.Name, m.Domain = marker.End, m.Timestamp+5e8, nil, nil
			b = marker.Append(b, &m)
		}
		for s := p.from; s < p.to; s++ {
			at := time.Duration(s) * time.Second
			add(at, fmt.Sprint("step ", s), marker.DefaultDomain)
			if p.comm != "" {
				add(at+1, fmt.Sprintf(`{"count": "8","groupName": "%s","opName": "HcclAllreduce"}`, p.comm), marker.CommunicationDomain)
			}
		}

		path := filepath.Join(dir, fmt.Sprint(t0+p.dir))
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	ranks, err := segment.Ranks(root)
	if err != nil {
		t.Fatal(err)
	}

	return ranks
}

// together lists the processes' jobs as dirs joined by +, without the common part.
func together(r Result) []string {
	out := []string{}
	for _, j := range r.Jobs {
		var dirs []string
		for _, d := range j.Dirs {
			dirs = append(dirs, strings.TrimPrefix(d, prefix+"17530000"))
		}

		out = append(out, strings.Join(dirs, "+")+" by "+strings.Join(j.why, ", then "))
	}

	return out
}

func TestDirectories(t *testing.T) {
	for _, c := range []struct {
		name      string
		processes []process
		want      []string
		doubtful  int
	}{
		{
			"each rank in a directory of its own",
			[]process{{5, 0, 0, 60, ""}, {6, 1, 0, 60, ""}, {7, 2, 1, 60, ""}, {5, 3, 0, 60, ""}},
			[]string{"05+06+07 by time and ranks"}, 0,
		},
		{
			"a rank restarted in place",
			[]process{{5, 0, 0, 60, ""}, {6, 1, 0, 20, ""}, {30, 1, 25, 60, ""}},
			[]string{"05+06+30 by time and ranks"}, 0,
		},
		{
			"a restarted rank names a communicator that is not the old one",
			[]process{{5, 0, 0, 60, "a"}, {6, 1, 0, 20, "a"}, {30, 1, 25, 60, "b"}},
			[]string{"05+06+30 by communicators, then time and ranks"}, 0,
		},
		{
			"one job after another",
			[]process{{5, 0, 0, 20, ""}, {6, 1, 0, 20, ""}, {30, 0, 25, 60, ""}, {31, 1, 26, 60, ""}},
			[]string{"05+06 by time and ranks", "30+31 by time and ranks"}, 0,
		},
		{
			"two jobs beside each other, the same ranks, no communicator: nothing is joined",
			[]process{{5, 0, 0, 60, ""}, {6, 1, 0, 60, ""}, {7, 0, 2, 60, ""}, {8, 1, 2, 60, ""}},
			[]string{}, 4,
		},
		{
			"two jobs beside each other, one rank of the second is not here",
			[]process{{5, 0, 0, 60, ""}, {6, 1, 0, 60, ""}, {7, 0, 2, 60, ""}},
			[]string{}, 3,
		},
		{
			"two jobs beside each other, communicators tell them apart",
			[]process{{5, 0, 0, 60, "a"}, {6, 1, 0, 60, "a"}, {7, 0, 2, 60, "b"}, {8, 1, 2, 60, "b"}},
			[]string{"05+06 by communicators", "07+08 by communicators"}, 0,
		},
		{
			"two jobs beside each other with a part of their ranks here, told apart by communicators",
			[]process{{5, 0, 0, 60, "a"}, {6, 1, 0, 60, "a"}, {7, 8, 2, 60, "b"}, {8, 9, 2, 60, "b"}},
			[]string{"05+06 by communicators", "07+08 by communicators"}, 0,
		},
		{
			"a communicator's name that two jobs have says nothing",
			[]process{{5, 0, 0, 60, "world"}, {6, 1, 0, 60, "world"}, {7, 0, 2, 60, "world"}, {8, 1, 2, 60, "world"}},
			[]string{}, 4,
		},
		{
			"one process that names none beside two that do",
			[]process{{5, 0, 0, 60, "a"}, {6, 1, 0, 60, "a"}, {7, 2, 0, 60, ""}},
			[]string{"05+06+07 by communicators, then time and ranks"}, 0,
		},
		{"one directory with all ranks", []process{{5, 0, 0, 60, ""}, {5, 1, 0, 60, ""}}, []string{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ranks := write(t, c.processes)
			r := Directories(ranks)
			if d := cmp.Diff(c.want, together(r)); d != "" || len(r.Doubtful) != c.doubtful {
				t.Fatalf("put together (-want +got), doubtful %v, want %d:\n%s", r.Doubtful, c.doubtful, d)
			}

			jobs := map[string]bool{}
			for _, d := range ranks {
				jobs[d.Job] = true
			}

			want := map[string]bool{}
			for _, p := range c.processes {
				want[fmt.Sprint(prefix, t0+p.dir)] = true
			}

			if got := len(want) - len(jobs); got != joined(r) {
				t.Errorf("%d names less, want %d", got, joined(r))
			}

			if len(r.Notes("")) == 0 && (len(c.want) > 0 || c.doubtful > 0) {
				t.Error("nothing is said of it")
			}
		})
	}
}

func joined(r Result) (n int) {
	for _, j := range r.Jobs {
		n += len(j.Dirs) - 1
	}

	return n
}

// TestDirectories_LeavesNamedJobs: only directories without a job's name are touched,
// and one without a line tells nothing.
func TestDirectories_LeavesNamedJobs(t *testing.T) {
	ranks := write(t, []process{{5, 0, 0, 60, ""}, {6, 1, 0, 60, ""}})
	named := ranks[1]
	named.Job = "uid-1"
	empty := segment.RankDir{RankID: record.RankID{Job: prefix + "1753000009", Rank: 2}, Path: t.TempDir()}
	ranks = []segment.RankDir{ranks[0], named, empty}
	if r := Directories(ranks); len(r.Jobs) != 0 || ranks[1].Job != "uid-1" || ranks[2] != empty {
		t.Fatalf("put together %+v, ranks %+v", r, ranks)
	}
}
