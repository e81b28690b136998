package profiles

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/laggard-dev/laggard/schemas/record"
)

// mindstudio reads MindStudio's cluster analysis: cluster_step_trace_time.csv has a line for each
// step and rank, communication_group.json who communicates with whom. These are sums: how long a
// rank computed, communicated and was idle in a step, not when.
var mindstudio = format{
	Name: "mindstudio",
	What: "MindStudio cluster analysis (cluster_step_trace_time.csv)",
	Leads: func(f *profileFile) bool {
		return f.Name() == "cluster_step_trace_time.csv" && bytes.HasPrefix(f.Head(), []byte(clusterHead))
	},
	Read: func(ctx context.Context, f *profileFile, out *output) error {
		groups, err := clusterGroups(f)
		if err != nil {
			out.Unread(f.Beside(clusterGroupsFile).Path, "%s; groups are left out", cause(err))
		}

		return readSums(ctx, f, out, func(line []string, columns map[string]int) (record.Meta, bool) {
			kind, index := columns["Type"], columns["Index"]
			if len(line) <= max(kind, index) || line[kind] != "rank" { // a stage's
				return record.Meta{}, false
			}

			rank := rankIn([]byte(line[index]))
			return record.Meta{Rank: rank, Groups: groupsOf(groups, rank)}, rank >= 0
		})
	},
}

const (
	sumsHead          = "Step,Computing,"
	clusterHead       = "Step,Type,Index,Computing,"
	clusterGroupsFile = "communication_group.json"
	// mostGroups bounds the groups of a cluster.
	mostGroups = 1 << 16
)

// columnsOfSums reads the first line of a table of sums: where each column stands. Versions add columns, and
// order them otherwise.
func columnsOfSums(table *csv.Reader) (map[string]int, error) {
	head, err := table.Read()
	if err != nil {
		return nil, fmt.Errorf("read its first line: %w", err)
	}

	columns := map[string]int{}
	for i, name := range head {
		columns[name] = i
	}

	for _, name := range []string{"Step", "Computing", "Communication(Not Overlapped)", "Overlapped", "Free"} {
		if _, ok := columns[name]; !ok {
			return nil, fmt.Errorf("it has no column %q", name)
		}
	}

	return columns, nil
}

// readSums reads a table of sums. whose tells whose a line is; what is nobody's is passed over. Steps are
// put end to end, for the table does not say when they were.
func readSums(ctx context.Context, f *profileFile, out *output, whose func(line []string, columns map[string]int) (record.Meta, bool)) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	table := csv.NewReader(ctxReader{ctx, r})
	table.ReuseRecord, table.FieldsPerRecord = true, -1
	columns, err := columnsOfSums(table)
	if err != nil {
		return err
	}

	ends := map[int]int64{}
	out.Note(f.Path, "it has sums and no times: steps stand end to end, from 1970 on, and all computing counts as FP")
	for n := 2; ; n++ {
		line, err := table.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			out.Unread(f.Path, "line %d: %s; what stands before was read", n, cause(err))
			return nil
		}

		who, ok := whose(line, columns)
		if !ok {
			continue
		}

		ranges, err := rangesOf(line, columns, max(ends[who.Rank], 1e9))
		if err != nil {
			out.Unread(f.Path, "line %d: %v; it is left out", n, err)
			continue
		}

		rank := out.Rank(who)
		for i := range ranges {
			rank.Add(&ranges[i])
		}

		ends[who.Rank] = ranges[0].End()
	}
}

// rangesOf makes of a line, whose times are decimal microseconds, ranges that add up to its sums, from a
// moment on: the step, in it computation and what nobody did, then communication, of which the beginning
// is overlapped. All computation counts as FP: the table doesn't tell forward from backward, and a rank
// is compared with like ranks only.
func rangesOf(line []string, columns map[string]int, at int64) ([]record.Record, error) {
	if len(line) <= columns["Step"] {
		return nil, errors.New("it is cut")
	}

	number, err := strconv.ParseInt(line[columns["Step"]], 10, 64)
	if err != nil || number < 0 {
		return nil, fmt.Errorf("%q is no step", line[columns["Step"]])
	}

	var computing, exposed, overlapped, free int64 // ns
	for name, to := range map[string]*int64{"Computing": &computing, "Communication(Not Overlapped)": &exposed, "Overlapped": &overlapped, "Free": &free} {
		i := columns[name]
		if i >= len(line) {
			return nil, errors.New("it is cut")
		}

		us, err := strconv.ParseFloat(line[i], 64)
		if err != nil || us < 0 || us > 1e12 {
			return nil, fmt.Errorf("%q is no time (%s)", line[i], name)
		}

		*to = int64(us * 1e3)
	}

	step := record.New(record.Step)
	step.Step, step.Start, step.Dur = number, at, max(computing+exposed+free, 1)
	ranges := []record.Record{step}
	if computing > 0 {
		r := record.New(record.FP)
		r.Side, r.Start, r.Dur = record.Device, at, computing
		ranges = append(ranges, r)
	}

	if c := exposed + overlapped; c > 0 {
		r := record.New(record.Communication)
		r.Side, r.Op, r.Exposed = record.Device, "all", exposed
		r.Start, r.Dur = max(step.End()-c, at), min(c, step.Dur)
		ranges = append(ranges, r)
	}

	return ranges, nil
}

// clusterGroups reads who communicates with whom: lists of ranks, which it names p2p where they are
// those of a stage.
func clusterGroups(f *profileFile) (all [][]int, err error) {
	g := f.Beside(clusterGroupsFile)
	if g == nil {
		return nil, nil
	}

	r, err := g.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var lists struct {
		Collective [][]int `json:"collective"`
	}
	if err := json.NewDecoder(io.LimitReader(r, 64<<20)).Decode(&lists); err != nil {
		return nil, err
	}

	if len(lists.Collective) > mostGroups {
		return nil, fmt.Errorf("more than %d groups", mostGroups)
	}

	for _, l := range lists.Collective {
		slices.Sort(l)
		all = append(all, l)
	}

	return all, nil
}

// groupsOf returns the groups of a rank. Of what kind they are the file does not say: ranks that lie
// side by side are taken for data parallel, others, which stride over those, for pipeline parallel.
func groupsOf(lists [][]int, rank int) (groups []record.Group) {
	world := 0
	for _, l := range lists {
		world = max(world, len(l))
	}

	for _, l := range lists {
		i, ok := slices.BinarySearch(l, rank)
		if !ok || len(l) < 2 || len(l) == world {
			continue
		}

		dim := "pp"
		if l[len(l)-1]-l[0] == len(l)-1 {
			dim = "dp"
		}

		groups = append(groups, record.Group{Dim: dim, Name: fmt.Sprintf("%s-%d", dim, l[0]), Index: i, Size: len(l), Ranks: l})
	}

	return groups
}
