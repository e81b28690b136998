package profiles

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// The profiler's other export is a SQLite file a rank, ascend_pytorch_profiler_<rank>.db: times are ns
// since 1970, words are numbers of STRING_IDS. COMMUNICATION_OP are the collectives on the device, and
// CANN_API, by connectionId, the call that enqueued one; STEP_TIME are the steps, PYTORCH_API the host's
// annotations. TASK is all that the device did: computation are the tasks that COMPUTE_TASK_INFO lists.

// ascendDB is one such file while it is read.
type ascendDB struct {
	*database
	*capture
	out   *output
	words map[int64]string // those of STRING_IDS that are used
}

// readAscendDB reads the tables that a capture is made of, and gives it out.
func readAscendDB(ctx context.Context, f *profileFile, out *output) (err error) {
	d, err := openDatabase(ctx, f)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, d.Close()) }()
	a := &ascendDB{database: d, capture: newCapture(record.Meta{Rank: ascendRank(f)}), out: out, words: map[int64]string{}}
	if err := d.readParts(ctx, out, a.identity, a.steps, a.communication, a.annotations, a.computation); err != nil {
		return err
	}

	return a.give(f, out)
}

// identity reads whose file it is, as far as the folder has not said it.
func (a *ascendDB) identity(ctx context.Context) error {
	if a.id.Rank < 0 {
		err := a.read(ctx, "RANK_DEVICE_MAP", []string{"rankId"}, func(c cells) error {
			if n := c.int(0); n >= 0 && n < mostRanks {
				a.id.Rank = int(n)
			}

			return nil
		})
		if err != nil {
			return err
		}
	}

	// Older ones have no host.
	return a.read(ctx, "HOST_INFO?", []string{"hostName"}, func(c cells) error {
		a.id.Node = record.Clip(c.text(0), record.MaxWord)
		return nil
	})
}

// steps reads the steps of the host.
func (a *ascendDB) steps(ctx context.Context) error {
	return a.read(ctx, "STEP_TIME", []string{"id", "startNs", "endNs"}, func(c cells) error {
		if len(a.marks) >= mostRanges {
			return errMany
		}

		r := record.New(record.Step)
		r.Step, r.Start, r.Dur = c.int(0), c.int(1), c.int(2)-c.int(1)
		if r.Step >= 0 && r.Dur > 0 {
			a.marks, a.anything = append(a.marks, r), true
		}

		return nil
	})
}

// errMany is why a table is not read to its end.
var errMany = errors.New("it has more rows than are held: the others are left out")

// communication reads the collectives, and what enqueued them. A table with too many rows is read as far
// as they are held.
func (a *ascendDB) communication(ctx context.Context) error {
	type names struct{ op, group, dtype int64 }
	var said []names
	err := a.read(ctx, "COMMUNICATION_OP", []string{"opName", "startNs", "endNs", "connectionId", "groupName", "dataType?", "count?"}, func(c cells) error {
		if len(a.kernels) >= mostRanges {
			return errMany
		}

		from, to := c.int(1), c.int(2)
		if to < from {
			return nil
		}

		said = append(said, names{c.int(0), c.int(4), c.int(5)})
		a.words[c.int(0)], a.words[c.int(4)] = "", ""
		a.kernels = append(a.kernels, comm{interval: interval{from, to}, count: c.int(6), corr: uint64(max(c.int(3), 0))})
		a.anything = true
		return nil
	})
	if err != nil && !errors.Is(err, errMany) {
		return err
	}

	if wordsErr := a.strings(ctx); wordsErr != nil {
		return errors.Join(err, wordsErr)
	}

	// Words are numbers of other tables, and only those that were used are read of them.
	dtypes := map[int64]string{}
	if len(said) > 0 {
		err = errors.Join(err, a.read(ctx, "ENUM_HCCL_DATA_TYPE", []string{"id", "name"}, func(c cells) error {
			if len(dtypes) < 256 {
				dtypes[c.int(0)] = c.text(1)
			}

			return nil
		}))
	}

	for i, n := range said {
		k := &a.kernels[i]
		k.op, _ = hcclName(a.words[n.op])
		k.group, k.dtype = a.words[n.group], dtypes[n.dtype]
	}

	return errors.Join(err, a.calls(ctx))
}

// calls reads the calls of the host that enqueued a collective, of all that there are.
func (a *ascendDB) calls(ctx context.Context) error {
	launched := map[uint64]bool{}
	for i := range a.kernels {
		launched[a.kernels[i].corr] = true
	}

	return a.read(ctx, "CANN_API", []string{"startNs", "endNs", "connectionId", "globalTid"}, func(c cells) error {
		if corr := uint64(max(c.int(2), 0)); corr != 0 && launched[corr] {
			hold(&a.launches, launch{corr, uint64(c.int(3)), interval{c.int(0), max(c.int(1), c.int(0))}})
		}

		return nil
	})
}

// strings reads the words that collectives use, and those that annotations can have.
func (a *ascendDB) strings(ctx context.Context) error {
	annotations := 0
	return a.read(ctx, "STRING_IDS", []string{"id", "value"}, func(c cells) error {
		id, w := c.int(0), c.text(1)
		_, used := a.words[id]
		if _, known := annotated([]byte(w), 0, 0); known && annotations < mostRanges {
			used = true
			annotations++
		}

		if used {
			a.words[id] = strings.Clone(record.Clip(w, record.MaxWord))
		}

		return nil
	})
}

// annotations reads what the host was doing, as Kineto's annotations say it; there is nothing of it
// where it was profiled without ProfilerActivity.CPU.
func (a *ascendDB) annotations(ctx context.Context) error {
	return a.read(ctx, "PYTORCH_API?", []string{"startNs", "endNs", "name"}, func(c cells) error {
		r, ok := annotated([]byte(a.words[c.int(2)]), c.int(0), c.int(1)-c.int(0))
		if ok && r.Kind != record.Step && r.Dur >= 0 { // STEP_TIME has the steps
			hold(&a.host, r)
		}

		return nil
	})
}

// computation reads when the device computed.
func (a *ascendDB) computation(ctx context.Context) error {
	const most = 8 << 20 // 64 MB
	var tasks []int64
	err := a.read(ctx, "COMPUTE_TASK_INFO", []string{"globalTaskId"}, func(c cells) error {
		if len(tasks) >= most {
			return errMany
		}

		tasks = append(tasks, c.int(0))
		return nil
	})
	if err != nil && !errors.Is(err, errMany) {
		return err
	}

	if !slices.IsSorted(tasks) {
		slices.Sort(tasks)
	}

	return errors.Join(err, a.read(ctx, "TASK", []string{"startNs", "endNs", "globalTaskId"}, func(c cells) error {
		if _, computes := slices.BinarySearch(tasks, c.int(2)); computes && c.int(1) >= c.int(0) {
			a.work.add(c.int(0), c.int(1))
			a.anything = true
		}

		return nil
	}))
}
