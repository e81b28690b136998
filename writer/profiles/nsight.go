package profiles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// nsight reads what Nsight Systems exports as SQLite (nsys export --type sqlite): the kernels of all
// GPUs and the NVTX ranges of all processes of one capture. A process and GPU is a rank.
//
// Communication are NCCL's kernels, with the host's launch by correlationId; the others are
// computation. Steps are NVTX ranges that are called so (step 12, iteration12). Neither communicators
// nor sizes are in the tables, ranks only in the environment or the arguments of what was launched.
var nsight = format{
	Name:    "nsight",
	What:    "Nsight Systems exports (nsys export --type sqlite)",
	Endings: []string{".sqlite", ".nsys-rep"},
	Leads: func(f *profileFile) bool {
		if exported, ok := strings.CutSuffix(f.Name(), ".nsys-rep"); ok {
			return f.Beside(exported+".sqlite") == nil
		}

		return f.holds("*.sqlite", []string{"StringIds", nsightKernels}, []string{"StringIds", "NVTX_EVENTS"})
	},
	Read: readNsight,
}

// nsightKernels is the table of what ran on the GPUs; an export has only the tables that something was recorded of.
const nsightKernels = "CUPTI_ACTIVITY_KIND_KERNEL"

// nsightFile is one export while it is read.
type nsightFile struct {
	*database
	out    *output
	base   int64            // ns since 1970 at which the capture's clock was 0
	node   string           // host
	words  map[int64]string // of StringIds: names that annotations have
	called map[int64]string // of StringIds: kernels of collectives
	ranks  map[onDevice]*capture
	said   map[string]string // RANK and its like: environment and arguments of the launched process
	held   int               // collectives of all ranks
	// markers are a process's ranges that may be its steps, by what they are called without the number.
	markers map[int64]map[string][]record.Record
}

// onDevice is a process and its GPU, by Nsight's own numbers: a process's is its globalPid.
type onDevice struct{ process, device int64 }

// readNsight reads the tables that captures are made of, one for each process on a GPU.
func readNsight(ctx context.Context, f *profileFile, out *output) (err error) {
	if !f.isSQLite() {
		return errors.New("it is not exported yet: nsys export --type sqlite " + f.Name())
	}

	d, err := openDatabase(ctx, f)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, d.Close()) }()
	n := &nsightFile{database: d, out: out, words: map[int64]string{}, called: map[int64]string{}, ranks: map[onDevice]*capture{}, said: map[string]string{}, markers: map[int64]map[string][]record.Record{}}
	if err := d.readParts(ctx, out, n.clock, n.launched, n.strings, n.kernels, n.graphs, n.launches, n.annotations); err != nil {
		return err
	}

	if len(n.ranks) == 0 {
		return errors.New("it has no kernel of a GPU: nothing can be told of its ranks (nsys profile --trace=cuda,nvtx)")
	}

	return n.give()
}

// clock reads when the capture's clock was 0, and the host.
func (n *nsightFile) clock(ctx context.Context) error {
	err := n.read(ctx, "TARGET_INFO_SESSION_START_TIME?", []string{"utcEpochNs"}, func(c cells) error {
		n.base = c.int(0)
		return nil
	})
	if err != nil {
		return err
	}

	return n.read(ctx, "TARGET_INFO_SYSTEM_ENV?", []string{"name", "value"}, func(c cells) error {
		if c.text(0) == "Hostname" {
			n.node = record.Clip(c.text(1), record.MaxWord)
		}

		return nil
	})
}

// launched reads of the launched process what says whose ranks they are: RANK="3" of its environment,
// --nnodes=2 or --nnodes 2 of its arguments.
func (n *nsightFile) launched(ctx context.Context) error {
	before := ""
	return n.read(ctx, "META_DATA_CAPTURE?", []string{"name", "value"}, func(c cells) error {
		_, what, _ := strings.Cut(c.text(0), ":")
		value := c.text(1)
		if what != "ENVIRONMENT_VARIABLE" && !strings.HasPrefix(what, "ARGUMENT_") {
			return nil
		}

		word, number, ok := strings.Cut(value, "=")
		if !ok {
			word, number = before, value
		}

		before = value
		word = strings.ReplaceAll(strings.TrimLeft(word, "-"), "-", "_")
		if slices.Contains(nsightWords, word) {
			n.said[word] = strings.Trim(number, `"`)
		}

		return nil
	})
}

var (
	rankWords   = []string{"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}
	worldWords  = []string{"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}
	nodeWords   = []string{"node_rank", "NODE_RANK", "GROUP_RANK", "SLURM_NODEID"}
	nodesWords  = []string{"nnodes", "SLURM_NNODES"}
	nsightWords = slices.Concat(rankWords, worldWords, nodeWords, nodesWords)
)

// number returns what the first of the words says that says something, else unknownRank.
func (n *nsightFile) number(words []string) int {
	for _, w := range words {
		if v := rankIn([]byte(n.said[w])); v >= 0 {
			return v
		}
	}

	return unknownRank
}

// strings reads the names of collectives' kernels, and those that annotations can have.
func (n *nsightFile) strings(ctx context.Context) error {
	return n.read(ctx, "StringIds", []string{"id", "value"}, func(c cells) error {
		w := c.text(1)
		_, known := annotated([]byte(w), 0, 0)
		if len(n.words)+len(n.called) >= mostRanges {
			return errMany
		}

		if op, ok := collectiveKernel([]byte(w)); ok {
			n.called[c.int(0)] = strings.Clone(record.Clip(op, record.MaxWord))
		} else if known || stepRange.MatchString(w) {
			n.words[c.int(0)] = strings.Clone(record.Clip(w, record.MaxWord))
		}

		return nil
	})
}

// rank returns what is known of a process on a GPU.
func (n *nsightFile) rank(process, device int64) *capture {
	at := onDevice{process, device}
	t := n.ranks[at]
	if t == nil {
		t = newCapture(record.Meta{Rank: unknownRank, Node: n.node, PID: int(process >> 24 & 0xffffff)})
		t.base, t.anything = n.base, true
		n.ranks[at] = t
	}

	return t
}

// mostDevices bounds the processes on GPUs of one capture.
const mostDevices = 1024

// kernels reads what ran on the GPUs: collectives one by one, of all else when there was any.
func (n *nsightFile) kernels(ctx context.Context) error {
	return n.read(ctx, nsightKernels, []string{"start", "end", "deviceId", "globalPid?", "shortName", "correlationId?", "streamId?"}, func(c cells) error {
		from, to := c.int(0), c.int(1)
		if to < from {
			return nil
		}

		t := n.rank(c.int(3), c.int(2))
		if len(n.ranks) > mostDevices {
			return fmt.Errorf("it has more than %d processes on GPUs", mostDevices)
		}

		op, ok := n.called[c.int(4)]
		if !ok {
			t.work.add(from, to)
			return nil
		}

		if n.held++; n.held > mostRanges {
			return errMany
		}

		t.kernels = append(t.kernels, comm{interval: interval{from, to}, op: op, corr: uint64(max(c.int(5), 0)), stream: uint64(max(c.int(6), 0))})
		return nil
	})
}

// graphs reads CUDA graphs that were recorded as wholes.
func (n *nsightFile) graphs(ctx context.Context) error {
	graphs := 0
	err := n.read(ctx, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE?", []string{"start", "end", "deviceId", "globalPid?"}, func(c cells) error {
		if c.int(1) >= c.int(0) && len(n.ranks) <= mostDevices {
			n.rank(c.int(3), c.int(2)).work.add(c.int(0), c.int(1))
			graphs++
		}

		return nil
	})
	if graphs > 0 {
		n.out.Unread(n.file.Path, "%d CUDA graphs were recorded as wholes: collectives in them are taken for computation (nsys profile --cuda-graph-trace=node)", graphs)
	}

	return err
}

// launches reads the calls that enqueued a collective.
func (n *nsightFile) launches(ctx context.Context) error {
	enqueued := map[int64][]uint64{} // numbers of a process's collectives
	devices := map[int64][]*capture{}
	for at, t := range n.ranks {
		for i := range t.kernels {
			enqueued[at.process] = append(enqueued[at.process], t.kernels[i].corr)
		}

		devices[at.process] = append(devices[at.process], t)
	}

	for _, numbers := range enqueued {
		slices.Sort(numbers)
	}

	return n.read(ctx, "CUPTI_ACTIVITY_KIND_RUNTIME?", []string{"start", "end", "globalTid", "correlationId"}, func(c cells) error {
		tid, corr := c.int(2), uint64(max(c.int(3), 0))
		process := tid &^ 0xffffff
		if _, ok := slices.BinarySearch(enqueued[process], corr); !ok || corr == 0 {
			return nil
		}

		for _, t := range devices[process] {
			hold(&t.launches, launch{corr, uint64(tid), interval{c.int(0), max(c.int(1), c.int(0))}})
		}

		return nil
	})
}

// stepRange is how the range of a step is called: step 12, iteration12, Train_Step, ProfilerStep#4.
var stepRange = regexp.MustCompile(`(?i)^(profilerstep|(?:global|train|training)[ _]?step|step|iteration|iter)[ _#:=-]*(\d{0,15})$`)

// Types of NVTX_EVENTS that are ranges: of one thread, nested, and of any.
const (
	nvtxPushPop  = 59
	nvtxStartEnd = 60
)

// annotations reads the NVTX ranges of the host.
func (n *nsightFile) annotations(ctx context.Context) error {
	held := 0
	return n.read(ctx, "NVTX_EVENTS?", []string{"start", "end", "eventType", "text?", "textId?", "globalTid?"}, func(c cells) error {
		kind, dur := c.int(2), c.int(1)-c.int(0)
		if kind != nvtxPushPop && kind != nvtxStartEnd || dur <= 0 {
			return nil
		}

		text := cmp.Or(c.text(3), n.words[c.int(4)])
		process := c.int(5) &^ 0xffffff // a globalTid is its process's globalPid and, in the lower 24 bits, the thread
		if held >= mostRanges {
			return errMany
		}

		if m := stepRange.FindStringSubmatch(text); m != nil {
			r := record.New(record.Step)
			r.Start, r.Dur = c.int(0), dur
			if m[2] != "" {
				r.Step = number([]byte(m[2]), record.NoStep)
			}

			if n.markers[process] == nil {
				n.markers[process] = map[string][]record.Record{}
			}

			word := strings.ToLower(m[1])
			n.markers[process][word] = append(n.markers[process][word], r)
			held++
		} else if r, ok := annotated([]byte(text), c.int(0), dur); ok {
			for at, t := range n.ranks {
				if at.process == process {
					t.host = append(t.host, r)
					held++
				}
			}
		}

		return nil
	})
}

// steps are those of a process's markers that last longest in sum: others stand within them. Ranges
// without a number are counted.
func (n *nsightFile) steps(process int64) (steps []record.Record) {
	most, sums := "", map[string]int64{}
	for word, ranges := range n.markers[process] {
		for i := range ranges {
			sums[word] += ranges[i].Dur
		}

		if most == "" || sums[word] > sums[most] || sums[word] == sums[most] && word < most {
			most = word
		}
	}

	steps = slices.Clone(n.markers[process][most])
	slices.SortFunc(steps, func(a, b record.Record) int { return cmp.Compare(a.Start, b.Start) })
	if slices.ContainsFunc(steps, func(r record.Record) bool { return r.Step == record.NoStep }) {
		for i := range steps {
			steps[i].Step = int64(i)
		}
	}

	return steps
}

// give names the ranks and gives their ranges out.
func (n *nsightFile) give() error {
	all := make([]onDevice, 0, len(n.ranks))
	for at := range n.ranks {
		all = append(all, at)
	}

	slices.SortFunc(all, func(a, b onDevice) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.process, b.process))
	})
	for i, at := range all {
		t := n.ranks[at]
		t.id.LocalRank = i
		t.id.Rank, t.id.WorldSize = n.whose(i, len(all))
		t.marks = n.steps(at.process)
		if err := t.give(n.file, n.out); err != nil {
			return err
		}

		delete(n.ranks, at) // what was given is not held twice
	}

	return nil
}

// whose returns the rank of the i-th of so many in the capture, and the number of all, as far as the
// launch tells them: of a process that was captured alone its own, else a node's place among them.
func (n *nsightFile) whose(i, of int) (rank, world int) {
	if of == 1 && n.number(rankWords) >= 0 {
		return n.number(rankWords), max(n.number(worldWords), 0)
	}

	node, nodes := n.number(nodeWords), n.number(nodesWords)
	if nodes == 1 {
		node = 0
	}

	if node < 0 {
		return unknownRank, 0
	}

	return node*of + i, max(nodes, 0) * of
}
