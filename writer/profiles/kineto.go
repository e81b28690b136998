package profiles

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"path"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// kineto reads the traces of PyTorch's profiler: Chrome JSON, a file a process. Kineto writes an
// object with categories and distributedInfo; a torch that was built without it writes the bare
// list of events, without either.
//
// Step is the host's ProfilerStep#N, and of a profiler without a schedule what the optimizer's steps
// end. Communication are the device's kernels of NCCL, RCCL and HCCL, with the host's launch, and
// where there are none the ranges of gloo and its like on the host. Its exposed part is what no kernel (on the host: no operator) of the process covers.
// FP is the annotation of a wrapped module's forward, on the same side as Communication.
var kineto = format{
	Name:    "kineto",
	What:    "PyTorch profiler traces (Kineto: .json, .json.gz)",
	Endings: []string{".json", ".gz"},
	Leads: func(f *profileFile) bool {
		h := f.Head()
		if c := f.begins(); c != '{' && c != '[' {
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

// readKineto reads one process's trace.
func readKineto(ctx context.Context, f *profileFile, out *output) error {
	t := newCapture(record.Meta{Rank: unknownRank})
	if err := t.scan(ctx, f, out, t.event); err != nil {
		return err
	}

	t.name(f)
	t.nameCommunicators()
	return t.give(f, out)
}

// scan reads the events of a trace, each by take.
func (t *capture) scan(ctx context.Context, f *profileFile, out *output, take func(*event)) (err error) {
	t.cut, err = f.read(ctx, out, func(r io.Reader) error { return scanTrace(r, t.beside, take) }, func() bool { return t.anything })
	return err
}

// beside takes what stands beside the events.
func (t *capture) beside(key, v []byte) {
	switch string(key) {
	case "baseTimeNanoseconds":
		t.base = number(text(v), 0)
	case "host_name":
		t.id.Node = string(text(v))
	case "deviceProperties":
		t.onDevice = len(elements(v)) > 0
	case "distributedInfo":
		if n := rankIn(memberOf(v, "rank")); n >= 0 {
			t.id.Rank = n
		}

		if n := rankIn(memberOf(v, "world_size")); n > 0 {
			t.id.WorldSize = n
		}

		for _, g := range elements(memberOf(v, "pg_config")) {
			name := string(memberOf(g, "pg_name"))
			t.member(name, string(memberOf(g, "pg_desc")), memberOf(g, "ranks"))
			if len(t.configured) < mostLanes {
				t.configured = append(t.configured, name)
			}
		}
	}
}

// event takes one event.
func (t *capture) event(e *event) {
	if e.ph != 'X' || e.dur < 0 {
		return
	}

	iv := interval{e.ts, e.ts + e.dur}
	switch string(e.cat) {
	case "kernel", "Kernel":
		t.kernel(e, iv)
	case "cuda_runtime", "cuda_driver", "Runtime", "runtime", "hip_runtime":
		if bytes.Contains(e.name, []byte("Launch")) {
			if n := number(e.arg("correlation"), 0); n > 0 {
				hold(&t.launches, launch{uint64(n), threadOf(e), iv})
			}
		}
	case "gpu_user_annotation":
		switch r, ok := annotated(e.name, e.ts, e.dur); {
		case !ok:
		case r.Kind == record.Step:
			hold(&t.deviceMarks, r)
		default:
			r.Side = record.Device
			hold(&t.device, annotation{r, number(e.arg("External id"), 0)})
		}
	case "cpu_op", "user_annotation", "Operator", "":
		t.hostRange(e, iv)
	default:
		return
	}

	t.anything = true
	t.last = max(t.last, iv.to)
}

// backends begin the names of collectives' ranges on the host. From the fourth on the work itself is
// on a device.
var backends = [...]string{"gloo:", "mpi:", "ucc:", "nccl:", "rccl:", "hccl:"}

// hostRange takes a range of the host.
func (t *capture) hostRange(e *event, iv interval) {
	name := string(e.name)
	for i, b := range backends {
		if strings.HasPrefix(name, b) {
			c := t.collective(e, iv)
			c.op = name
			if i >= 3 {
				t.nccl = true
				hold(&t.enqueued, c)
			} else {
				hold(&t.blocking, c)
			}

			return
		}
	}

	if name == "record_param_comms" {
		hold(&t.enqueued, t.collective(e, iv))
		return
	}

	if r, ok := annotated(e.name, e.ts, e.dur); ok {
		if r.Kind == record.Step {
			hold(&t.marks, r)
		} else {
			hold(&t.host, r)
		}

		if r.Kind == record.FP || r.Kind == record.Other {
			t.hostExt[number(e.arg("External id"), 0)] = iv
		}

		return
	}

	// Operators are the host's work, beside which communication is not exposed. Annotations and c10d's own
	// wrappers lie around communication, and would hide all of it.
	if string(e.cat) != "user_annotation" && !strings.HasPrefix(name, "c10d::") && !strings.Contains(name, "#") {
		t.ops.add(iv.from, iv.to)
	}
}

// name takes from the file's name what the trace does not say: rank, host, process and, where times
// count from the trace's begin, when that was.
func (t *capture) name(f *profileFile) {
	m := exported.FindStringSubmatch(path.Base(f.name))
	if t.id.Rank < 0 {
		t.id.Rank = rankOfName(f.name)
		t.named = t.id.Rank >= 0
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

	host, pid := hostOf(f.name)
	t.id.Node = cmp.Or(t.id.Node, host)
	t.id.PID = cmp.Or(t.id.PID, pid)
}

// kernel takes a kernel of the device: communication or work.
func (t *capture) kernel(e *event, iv interval) {
	corr := uint64(max(number(e.arg("correlation"), 0), 0))
	if len(t.ran) < mostIntervals {
		t.ran = append(t.ran, corr)
	}

	op, ok := collectiveKernel(e.name)
	if !ok {
		t.work.add(iv.from, iv.to)
		return
	}

	k := t.collective(e, iv)
	k.op = cmp.Or(k.op, op)
	k.corr, k.stream = corr, uint64(max(number(e.arg("stream"), 0), 0))
	hold(&t.kernels, k)
}

// collective reads what newer traces say of a collective, of the host as long as nothing else is said.
func (t *capture) collective(e *event, iv interval) comm {
	c := comm{
		interval: iv, stream: threadOf(e), op: string(e.arg("Collective name")), group: string(e.arg("Process Group Name")), dtype: string(e.arg("dtype")),
		count: max(number(e.arg("In msg nelems"), 0), number(e.arg("Out msg nelems"), 0)),
	}
	if c.group != "" && t.groups[c.group] == nil {
		t.member(c.group, string(e.arg("Process Group Description")), e.arg("Process Group Ranks"))
	}

	return c
}

// threadOf returns a number for the thread of an event.
func threadOf(e *event) uint64 {
	if n := number(e.tid, -1); n >= 0 {
		return uint64(n)
	}

	return uint64(record.HashID(string(e.tid)))
}
