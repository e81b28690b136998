package profiles

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// capture is what one profile has said so far of what one process did, on its host and its device.
// All times in it are the profile's own, ns; base is added when ranges are given out. It holds the
// whole profile, for what joins a kernel and its launch may stand anywhere in a trace.
type capture struct {
	id     record.Meta // whose it is, Rank unknownRank until that is told
	named  bool        // id.Rank is that of the file's name
	base   int64       // ns to add to all times
	groups map[string]*record.Group
	// configured are the process groups that the trace lists, in the order in which they were made.
	configured []string

	marks       []record.Record // Step, of the host
	deviceMarks []record.Record // and of the device, a stream each
	host        []record.Record // DataLoader, FP, backward, optimizer, SaveCheckpoint of the host
	device      []annotation    // FP, backward and optimizer of the device
	kernels     []comm
	blocking    []comm             // of gloo and its like, on the host
	enqueued    []comm             // what was said of collectives when they were enqueued
	hostExt     map[int64]interval // annotations that the device has too, by external id
	launches    []launch
	work        cover // kernels, of the device
	ops         cover // operators, of the host

	ran []uint64 // numbers of the launches whose kernels are here

	last     int64 // latest end
	nccl     bool  // collectives were enqueued to a device
	onDevice bool  // the process had a device
	cut      bool  // the profile breaks off
	anything bool
}

// annotation is a range of the device that the host has too.
type annotation struct {
	rec record.Record
	ext int64
}

// newCapture is a capture of which nothing but its identity is known.
func newCapture(id record.Meta) *capture {
	return &capture{id: id, groups: map[string]*record.Group{}, hostExt: map[int64]interval{}}
}

// hold appends what a capture holds, as long as there is room for it.
func hold[T any](list *[]T, v T) {
	if len(*list) < mostRanges {
		*list = append(*list, v)
	}
}

// member notes a process group with the ranks in it.
func (t *capture) member(name, what string, list []byte) {
	const most = 256 // groups that a row of ranks keeps
	if name == "" || t.groups[name] != nil || len(t.groups) >= most {
		return
	}

	var ranks []int
	for _, e := range elements(list) {
		n := rankIn(e)
		if n < 0 {
			return // shortened to "0, 1, …"
		}

		ranks = append(ranks, n)
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

// stepMark begins the annotation that PyTorch's profiler makes of each of its steps; the number follows.
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
	case strings.HasPrefix(w, "optimizer.step"):
		r.Kind, r.Name = record.Other, "optimizer"
	case strings.Contains(w, "save_checkpoint"), strings.Contains(w, "save checkpoint"), strings.Contains(w, "checkpoint_save"), strings.Contains(w, "checkpoint.save"):
		r.Kind = record.SaveCheckpoint
	default:
		return r, false
	}

	return r, true
}

// give gives the ranges out. Of a process with a device the host's forward, backward and optimizer
// are left out: they took only as long as it takes to enqueue the work.
func (t *capture) give(f *profileFile, out *output) error {
	if !t.anything {
		return errors.New("it holds no event of an operator, an annotation or a kernel")
	}

	rank := out.Rank(t.id)
	rank.named = rank.named || t.named
	t.giveGroups(rank)
	t.onDevice = t.ranOnDevice()
	steps, partly, derived := t.steps()
	if derived {
		out.Note(f.Path, "it marks no step: each step of its optimizer ends one")
	}

	if rank.Partly = partly > 0; rank.Partly {
		out.Unread(f.Path, "%d of its %d steps are left out: what was done in them is not all there", partly, partly+len(steps))
	}

	t.giveCollectives(f, out, rank)
	for i := range steps {
		steps[i].Start += t.base
		rank.Add(&steps[i])
	}

	for i := range t.host {
		r := &t.host[i]
		if t.onDevice && (r.Kind == record.FP || r.Kind == record.Other) {
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

// giveCollectives gives the communication, of the device where it was recorded there, else what the
// host was blocked in, and says when the device computed. Collectives of which only the enqueuing was
// recorded are told of.
func (t *capture) giveCollectives(f *profileFile, out *output, rank *rankOutput) {
	comms, device := t.kernels, true
	if len(comms) == 0 {
		comms, device = t.blocking, false
	}

	switch {
	case len(comms) > 0 || !t.nccl || t.cut:
	case len(t.work.all) > 0:
		out.Unread(f.Path, "collectives were enqueued to a device and no kernel there is a collective that is known: how long they took can't be told")
	default:
		out.Unread(f.Path, "collectives were enqueued to a device and no activity of the device was recorded: how long they took can't be told (profile with ProfilerActivity.CUDA)")
	}

	device = device && len(comms) > 0 || len(t.work.all) > 0
	t.giveComms(rank, comms, device)
	if !device {
		return
	}

	if from, to := t.work.extent(); to > from {
		rank.computed = interval{from + t.base, to + t.base}
	}
}

// ranOnDevice reports whether the process worked on a device, whether or not that was recorded: what
// the host has of its work then is the time to enqueue it.
func (t *capture) ranOnDevice() bool {
	return len(t.kernels) > 0 || len(t.work.all) > 0 || t.nccl || t.onDevice && len(t.blocking) == 0
}

// giveGroups gives a rank the process groups that it is a member of.
func (t *capture) giveGroups(rank *rankOutput) {
	for _, g := range t.groups {
		if g.Index = slices.Index(g.Ranks, rank.Rank); g.Index >= 0 {
			rank.Groups = append(rank.Groups, *g)
		}
	}

	slices.SortFunc(rank.Groups, func(a, b record.Group) int { return strings.Compare(a.Name, b.Name) })
}
