package profiles

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// ascend reads what Ascend's PyTorch profiler exports: a folder <name>_ascend_pt a rank, with
// profiler_info_<rank>.json and ASCEND_PROFILER_OUTPUT in it. Its trace_view.json leads: steps and
// annotations of the host as in Kineto's traces, the collectives of HCCL on the device with the call
// that enqueued them, and when the device computed. Where there is none, the same
// stands in a database (ascend_db.go), or step_trace_time.csv has the sums of steps.
var ascend = format{
	Name: "ascend",
	What: "Ascend PyTorch Profiler output (*_ascend_pt/ASCEND_PROFILER_OUTPUT), text or .db",
	Leads: func(f *profileFile) bool {
		switch f.Name() {
		case ascendTrace:
			return f.begins() == '[' && bytes.Contains(f.Head(), []byte(`"ph"`))
		case ascendSums:
			return f.Beside(ascendTrace) == nil && len(f.matches("*.db")) == 0 && bytes.HasPrefix(f.Head(), []byte(sumsHead))
		}

		return f.holds("ascend_*_profiler*.db", []string{"COMMUNICATION_OP", "STRING_IDS"}, []string{"STEP_TIME", "TASK"}) && f.Beside(ascendTrace) == nil
	},
	Read: readAscend,
}

const (
	ascendTrace = "trace_view.json"
	ascendSums  = "step_trace_time.csv"
)

// readAscend reads whichever of the three forms f is of.
func readAscend(ctx context.Context, f *profileFile, out *output) error {
	if f.isSQLite() {
		return readAscendDB(ctx, f, out)
	}

	id := record.Meta{Rank: ascendRank(f)}
	if f.Name() == ascendSums {
		return readSums(ctx, f, out, func([]string, map[string]int) (record.Meta, bool) { return id, true })
	}

	t := newCapture(id)
	if err := t.scan(ctx, f, out, t.ascendEvent); err != nil {
		return err
	}

	t.onDevice = t.onDevice || t.cut
	t.name(f)
	return t.give(f, out)
}

// ascendRank is what profiler_info_<rank>.json, beside the folder of a trace, says.
func ascendRank(f *profileFile) int {
	for _, p := range f.matches("../profiler_info*.json") {
		if n := rankIn(memberOf(bytes.TrimSpace(p.Head()), "rank_id")); n >= 0 {
			return n
		}
	}

	return unknownRank
}

// ascendEvent takes one event of trace_view.json.
func (t *capture) ascendEvent(e *event) {
	iv := interval{e.ts, e.ts + e.dur}
	switch {
	case e.ph == 's' && string(e.cat) == "async_npu": // its id is the start on the device
		if n := number(e.id, 0); n > 0 {
			hold(&t.launches, launch{uint64(n), threadOf(e), interval{e.ts, e.ts}})
		}
	case e.ph != 'X' || e.dur < 0:
	case string(e.cat) == "cpu_op":
		t.event(e)
	case bytes.HasPrefix(e.name, []byte("hcom_")):
		c := comm{interval: iv, dtype: string(e.arg("data_type")), count: number(e.arg("count"), 0), corr: uint64(max(e.ts, 0))}
		c.op, c.group = hcclName(string(e.name))
		hold(&t.kernels, c)
		t.anything, t.last = true, max(t.last, iv.to)
	case string(e.name) == "Computing" && len(e.cat) == 0:
		t.work.add(iv.from, iv.to)
	}
}

// hcclName returns operation and communicator of a name such as hcom_allReduce__868_0_1: the
// communicator's last digits, the place in it, the stream.
func hcclName(name string) (op, group string) {
	op, rest, _ := strings.Cut(strings.TrimPrefix(name, "hcom_"), "__")
	op = strings.TrimRight(op, "_")
	if _, whole, ok := strings.Cut(rest, "@"); ok {
		return op, whole
	}

	group, _, _ = strings.Cut(rest, "_")
	return op, group
}

// matches returns the files that a pattern relative to the folder of f names.
func (f *profileFile) matches(pattern string) (all []*profileFile) {
	d, err := f.root.Open(path.Join(path.Dir(f.name), path.Dir(pattern)))
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(mostFiles) // those that were read
	slices.Sort(names)
	for _, name := range names {
		if ok, _ := path.Match(path.Base(pattern), name); ok {
			if x := f.Beside(path.Join(path.Dir(pattern), name)); x != nil {
				all = append(all, x)
			}
		}
	}

	return all
}
