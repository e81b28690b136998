package profiles

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// flight reads dumps of PyTorch's Flight Recorder as JSON, one file a rank: the last collectives of a
// process, with operation, process group, sizes and types, and when each was called. The file's name
// tells the rank (nccl_trace_rank_3.json), the default group how many there are.
//
// When a collective ended is there as far as its backend says it: of NCCL the time that the watchdog
// found it done and, where timing was on (TORCH_NCCL_ENABLE_TIMING), how long it ran on the device; of
// gloo nothing. A collective without an end is an open range of no length.
//
// The recorder's own form is a pickle, which runs code when it is loaded: it is known and not read.
var flight = format{
	Name:    "flight",
	What:    "PyTorch Flight Recorder dumps as JSON (_dump_nccl_trace_json, _dump_fr_trace_json)",
	Endings: []string{".json"},
	Leads: func(f *profileFile) bool {
		h := f.Head()
		if pickled(h) {
			return bytes.Contains(h, []byte("pg_config")) && bytes.Contains(h, []byte("version")) && f.Beside(f.Name()+".json") == nil
		}

		return f.begins() == '{' && bytes.Contains(h, []byte(`"entries"`)) && (bytes.Contains(h, []byte(`"pg_config"`)) || bytes.Contains(h, []byte(`"profiling_name"`)))
	},
	Read: readFlight,
}

// pickled reports whether a file begins as a pickle of protocol 2 to 5 does.
func pickled(head []byte) bool {
	return len(head) > 1 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5
}

// flightDump is one dump while it is read.
type flightDump struct {
	*capture
	rank   *rankOutput
	used   map[string]string // process groups that entries name, and what they are for
	unseen int               // collectives whose end nobody saw
}

// readFlight reads one dump, which is one process's.
func readFlight(ctx context.Context, f *profileFile, out *output) error {
	if pickled(f.Head()) {
		return errors.New("a pickle, which could run code when it is loaded, is not read: dump JSON with torch._C._distributed_c10d._dump_nccl_trace_json() (gloo: _dump_fr_trace_json()), or turn one that you trust into JSON: " +
			`python3 -c "import pickle,json,sys; json.dump(pickle.load(sys.stdin.buffer), sys.stdout)" <` + f.Name() + ` >` + f.Name() + `.json`)
	}

	d := &flightDump{capture: newCapture(record.Meta{Rank: rankOfName(f.name)}), used: map[string]string{}}
	d.rank = out.Rank(d.id)
	scan := func(r io.Reader) error { return scanDocument(r, "entries", d.config, d.entry) }
	if _, err := f.read(ctx, out, scan, func() bool { return d.anything }); err != nil {
		return err
	}

	if d.unseen > 0 {
		out.Note(f.Path, "it tells when collectives were called, and of %d not when they ended: who waited how long can't be told", d.unseen)
	}

	d.world()
	d.giveGroups(d.rank)
	return nil
}

// config takes what stands beside the entries: the process groups.
func (d *flightDump) config(key, v []byte) {
	if string(key) != "pg_config" {
		return
	}

	_, _ = members(v, 0, func(_, g []byte) bool { // one that breaks off has those before
		// The default group has no name here, and "0" in the entries.
		name := cmp.Or(string(memberOf(g, "name")), "0")
		d.member(name, string(memberOf(g, "desc")), memberOf(g, "ranks"))
		return true
	})
}

// entry takes one collective, which begins at b[i].
func (d *flightDump) entry(b []byte, i int) (int, error) {
	end, err := value(b, i)
	if err != nil {
		return end, err
	}

	e := b[i:end]
	raw := string(memberOf(e, "profiling_name"))
	if _, what, ok := strings.Cut(raw, ":"); ok { // nccl:all_reduce
		raw = what
	}

	r := record.New(record.Communication)
	r.Start = number(memberOf(e, "time_created_ns"), 0)
	if raw == "" || r.Start <= 0 {
		return end, nil
	}

	d.anything = true
	raw, other, _ := strings.Cut(raw, " ") // send 0->1, recv 0<-1
	setOp(&r, raw)
	if i := strings.LastIndexAny(other, ">-"); i >= 0 {
		r.Peer = int32(rankIn([]byte(other[i+1:])))
	}

	if g := elements(memberOf(e, "process_group")); len(g) > 0 {
		r.Group = string(g[0])
		if len(g) > 1 && len(d.used) < 256 {
			d.used[r.Group] = string(g[1])
		}
	}

	r.Thread = uint64(max(number(memberOf(e, "thread_id"), 0), 0))
	r.Count = max(countOf(memberOf(e, "input_sizes")), countOf(memberOf(e, "output_sizes")))
	if t := elements(memberOf(e, "input_dtypes")); len(t) > 0 {
		r.Dtype = record.BaseDtype(string(t[0]))
	}

	r.Bytes = r.Count * int64(record.DtypeSize(r.Dtype))
	d.times(&r, e)
	d.rank.Add(&r)
	return end, nil
}

// times sets when a collective, which is made for its call, ran: on the device where its length there is
// known, else until it was found done.
func (d *flightDump) times(r *record.Record, e []byte) {
	called, done := r.Start, number(memberOf(e, "time_discovered_completed_ns"), 0)
	ms, err := strconv.ParseFloat(string(memberOf(e, "duration_ms")), 64)
	switch {
	case err == nil && ms >= 0 && ms < 1e9 && done > called:
		r.Side, r.HostStart = record.Device, called
		r.Dur = int64(ms * 1e6)
		r.Start = max(done-r.Dur, called)
	case done > called:
		r.Dur = done - called
	default:
		r.Open = true
		d.unseen++
	}
}

// countOf sums the elements of a list of tensors' sizes: [[4, 1], []] has 5.
func countOf(list []byte) (total int64) {
	const most = 1 << 50
	for _, tensor := range elements(list) {
		n := int64(1)
		for _, e := range elements(tensor) {
			size := number(e, 0)
			if size < 0 || size > most || size > 0 && n > most/size {
				return 0
			}

			n *= size
		}

		total = min(total+n, most)
	}

	return total
}

// world sets the number of ranks by the default group.
func (d *flightDump) world() {
	for name, g := range d.groups {
		if last := slices.Max(g.Ranks); (name == "0" || d.used[name] == "default_pg") && last == len(g.Ranks)-1 {
			d.rank.WorldSize = len(g.Ranks)
		}
	}
}
