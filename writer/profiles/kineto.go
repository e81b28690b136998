package profiles

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// kineto reads the traces of PyTorch's profiler: Chrome JSON, a file a process. Kineto writes an
// object with categories and distributedInfo; a torch that was built without it writes the bare
// list of events, without either.
//
// Step is the host's ProfilerStep#N. Communication are the device's kernels of NCCL, RCCL and
// HCCL, with the host's launch, and where there are none the ranges of gloo and its like on the
// host. Its exposed part is what no kernel (on the host: no operator) of the process covers.
// FP is the annotation of a wrapped module's forward, on the same side as Communication.
var kineto = Format{
	Name: "kineto",
	What: "PyTorch profiler traces (Kineto: .json, .json.gz)",
	Leads: func(f *File) bool {
		h := f.Head()
		if i := space(h, 0); i == len(h) || h[i] != '{' && h[i] != '[' {
			return false
		}
		if bytes.Contains(h, []byte(`"schemaVersion"`)) || bytes.Contains(h, []byte(`"deviceProperties"`)) {
			return true
		}
		return bytes.Contains(h, []byte(`"ph"`)) && (bytes.Contains(h, []byte(`"CPU functions"`)) || bytes.Contains(h, []byte(`"traceEvents"`))) ||
			bytes.Contains(h, []byte(`"traceEvents"`)) && bytes.Contains(h, []byte(`"distributedInfo"`))
	},
	Read: readKineto,
}

// kinetoTrace is what one trace has said so far.
type kinetoTrace struct {
	id     Identity
	base   int64 // ns to add to all times
	groups map[string]*record.Group

	host     []record.Record // Step, DataLoader, FP, backward, SaveCheckpoint of the host
	device   []annotation    // FP and backward of the device
	kernels  []comm
	blocking []comm             // of gloo and its like, on the host
	enqueued []comm             // what was said of collectives when they were enqueued
	hostExt  map[int64]interval // annotations that the device has too, by external id
	launches []launch
	work     cover // kernels, of the device
	ops      cover // operators, of the host

	last     int64 // latest end
	nccl     bool  // collectives were enqueued to a device
	anything bool
}

// annotation is a range of the device that the host has too.
type annotation struct {
	rec record.Record
	ext int64
}

func newKinetoTrace(id Identity) *kinetoTrace {
	return &kinetoTrace{id: id, groups: map[string]*record.Group{}, hostExt: map[int64]interval{}}
}

func readKineto(ctx context.Context, f *File, out *Output) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	t := newKinetoTrace(Identity{Rank: UnknownRank})
	err = scanTrace(ctxReader{ctx, r}, t.beside, t.event)
	if err != nil && !t.anything {
		return err
	}
	if err != nil {
		out.Unread(f.Path, "%s; what stands before was read", cause(err))
	}
	t.name(f)
	return t.give(f, out)
}

// beside takes what stands beside the events.
func (t *kinetoTrace) beside(key, v []byte) {
	switch string(key) {
	case "baseTimeNanoseconds":
		t.base = number(text(v), 0)
	case "host_name":
		t.id.Node = string(text(v))
	case "distributedInfo":
		if n := number(memberOf(v, "rank"), -1); n >= 0 && n < 1<<24 {
			t.id.Rank = int(n)
		}
		if n := number(memberOf(v, "world_size"), 0); n > 0 && n < 1<<24 {
			t.id.World = int(n)
		}
		for _, g := range elements(memberOf(v, "pg_config")) {
			t.member(string(memberOf(g, "pg_name")), string(memberOf(g, "pg_desc")), memberOf(g, "ranks"))
		}
	}
}

// member notes a process group with the ranks in it.
func (t *kinetoTrace) member(name, what string, list []byte) {
	const most = 256 // groups that a row of ranks keeps
	if name == "" || t.groups[name] != nil || len(t.groups) >= most {
		return
	}
	var ranks []int
	for _, e := range elements(list) {
		n := number(e, -1)
		if n < 0 || n >= 1<<24 {
			return // shortened to "0, 1, …"
		}
		ranks = append(ranks, int(n))
	}
	if len(ranks) > 1 {
		t.groups[name] = &record.Group{Dim: dimOf(what), Name: name, Size: len(ranks), Ranks: ranks}
	}
}

// dimOf returns the dimension that a process group is named for: mesh_dp, TENSOR_MODEL_PARALLEL_GROUP.
func dimOf(what string) string {
	words := strings.FieldsFunc(strings.ToLower(what), func(r rune) bool { return r < 'a' || r > 'z' })
	for _, w := range words {
		switch w {
		case "tp", "pp", "dp", "cp", "ep":
			return w
		case "tensor":
			return "tp"
		case "pipeline", "pipe":
			return "pp"
		case "data", "fsdp", "ddp":
			return "dp"
		case "context":
			return "cp"
		case "expert":
			return "ep"
		}
	}
	return ""
}

// elements splits a list, which may be a text that holds one.
func elements(list []byte) (all [][]byte) {
	if len(list) == 0 || list[0] != '[' {
		return nil
	}
	for i := space(list, 1); i < len(list) && list[i] != ']'; {
		if list[i] == ',' {
			if i = space(list, i+1); i == len(list) {
				return nil
			}
		}
		end, err := value(list, i)
		if err != nil {
			return nil
		}
		all = append(all, text(list[i:end]))
		i = space(list, end)
	}
	return all
}

// event takes one event.
func (t *kinetoTrace) event(e *event) {
	if e.ph != 'X' || e.dur < 0 {
		return
	}
	iv := interval{e.ts, e.ts + e.dur}
	switch string(e.cat) {
	case "kernel", "Kernel":
		t.kernel(e, iv)
	case "cuda_runtime", "cuda_driver", "Runtime", "runtime", "hip_runtime":
		if bytes.Contains(e.name, []byte("Launch")) && len(t.launches) < mostRanges {
			if n := number(e.arg("correlation"), 0); n > 0 {
				t.launches = append(t.launches, launch{uint64(n), threadOf(e), iv})
			}
		}
	case "gpu_user_annotation":
		if r, ok := annotated(e.name, e.ts, e.dur); ok && r.Kind != record.Step {
			r.Side = record.Device
			t.device = append(t.device, annotation{r, number(e.arg("External id"), 0)})
		}
	case "cpu_op", "user_annotation", "Operator", "":
		t.hostRange(e, iv)
	default:
		return
	}
	t.anything = true
	t.last = max(t.last, iv.to)
}

var backends = [...]string{"gloo:", "mpi:", "ucc:", "nccl:", "rccl:", "hccl:"}

// hostRange takes a range of the host.
func (t *kinetoTrace) hostRange(e *event, iv interval) {
	name := string(e.name)
	for i, b := range backends {
		if strings.HasPrefix(name, b) {
			c := t.collective(e)
			c.interval, c.op = iv, name
			if i >= 3 {
				t.nccl = true
				t.enqueue(c, e)
			} else if len(t.blocking) < mostRanges {
				t.blocking = append(t.blocking, c)
			}
			return
		}
	}
	if name == "record_param_comms" {
		c := t.collective(e)
		c.interval = iv
		t.enqueue(c, e)
		return
	}
	if r, ok := annotated(e.name, e.ts, e.dur); ok {
		if r.Kind == record.Step || len(t.host) < mostRanges {
			t.host = append(t.host, r)
		}
		if r.Kind == record.FP || r.Kind == record.Other {
			t.hostExt[number(e.arg("External id"), 0)] = iv
		}
		return
	}
	if string(e.cat) != "user_annotation" && !strings.HasPrefix(name, "c10d::") && !strings.Contains(name, "#") {
		t.ops.add(iv.from, iv.to)
	}
}

const stepMark = "ProfilerStep#"

// annotated returns the range that an annotation stands for.
func annotated(name []byte, ts, dur int64) (record.Record, bool) {
	r := record.New(record.Step)
	r.Start, r.Dur = ts, dur
	if n, ok := bytes.CutPrefix(name, []byte(stepMark)); ok {
		r.Step = number(n, record.NoStep)
		return r, r.Step >= 0
	}
	switch w := string(bytes.ToLower(bytes.Trim(name, "# "))); {
	case strings.HasPrefix(w, "enumerate(dataloader)"):
		r.Kind = record.DataLoader
	case w == "distributeddataparallel.forward", w == "fullyshardeddataparallel.forward", w == "forward":
		r.Kind = record.FP
	case w == "backward":
		r.Kind, r.Name = record.Other, "backward"
	case strings.Contains(w, "save_checkpoint"), strings.Contains(w, "save checkpoint"), strings.Contains(w, "checkpoint_save"), strings.Contains(w, "checkpoint.save"):
		r.Kind = record.SaveCheckpoint
	default:
		return r, false
	}
	return r, true
}

var hostAndPID = regexp.MustCompile(`^(.+)_(\d+)$`)

// name takes from the file's name what the trace does not say: rank, host, process and, where times
// count from the trace's begin, when that was.
func (t *kinetoTrace) name(f *File) {
	m := exported.FindStringSubmatch(path.Base(f.name))
	if t.id.Rank < 0 {
		t.id.Rank = rankOfName(f.name)
	}
	if m == nil {
		return
	}
	const sinceBoot = 400 * 24 * 3600 * int64(1e9) // as TaskD's readers take it
	if at := number([]byte(m[2]), 0); t.base == 0 && t.last < sinceBoot {
		if len(m[2]) == 13 {
			at *= 1e6
		}
		t.base = at - t.last
	}
	if w := hostAndPID.FindStringSubmatch(m[1]); w != nil && !rankWord.MatchString(m[1]) {
		t.id.Node = cmp.Or(t.id.Node, w[1])
		t.id.PID, _ = strconv.Atoi(w[2])
	}
}

// give gives the ranges out.
func (t *kinetoTrace) give(f *File, out *Output) error {
	if !t.anything {
		return errors.New("it holds no event of an operator, an annotation or a kernel")
	}
	rank := out.Rank(t.id)
	for _, g := range t.groups {
		if g.Index = slices.Index(g.Ranks, t.id.Rank); g.Index >= 0 {
			rank.Groups = append(rank.Groups, *g)
		}
	}
	slices.SortFunc(rank.Groups, func(a, b record.Group) int { return strings.Compare(a.Name, b.Name) })
	comms, device := t.kernels, true
	if len(comms) == 0 {
		comms, device = t.blocking, false
	}
	if len(comms) == 0 && t.nccl {
		out.Unread(f.Path, "collectives were enqueued to a device and no activity of the device was recorded: how long they took can't be told (profile with ProfilerActivity.CUDA)")
	}
	device = device && len(comms) > 0 || len(t.work.all) > 0
	t.giveComms(rank, comms, device)
	for i := range t.host {
		r := &t.host[i]
		if device && (r.Kind == record.FP || r.Kind == record.Other) {
			continue // only the time to enqueue
		}
		r.Start += t.base
		rank.Add(r)
	}
	for i := range t.device {
		a := &t.device[i]
		if host, ok := t.hostExt[a.ext]; ok && a.ext != 0 {
			a.rec.HostStart, a.rec.HostDur = host.from+t.base, host.to-host.from
		}
		a.rec.Start += t.base
		rank.Add(&a.rec)
	}
	return nil
}
