package profiles

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Eight real traces of one step: the kernels' times are those of the sample's README, which an
// eye read from the traces.
func TestKinetoOfEightRanks(t *testing.T) {
	got := open(t, "testdata/dlrm-8rank", Options{})
	if got.Format.Name != "kineto" || got.Profiles != 8 || got.Tree.Ranks != 8 || len(got.Unread) > 0 || got.Job != "dlrm-8rank" {
		t.Fatalf("%d profiles of %d ranks in %s, job %s; not read: %v", got.Profiles, got.Tree.Ranks, got.Format.Name, got.Job, got.Unread)
	}

	if len(got.Steps) != 8 {
		t.Fatalf("%d steps", len(got.Steps))
	}

	for i, s := range got.Steps {
		if s.Step != 10 || int(s.Rank) != i || s.DataLoaderNs < 1e6 || s.Flags&row.FlagHostOnly != 0 {
			t.Errorf("step %d of rank %d: %+v", s.Step, s.Rank, s)
		}
	}

	for rank, want := range map[uint32]float64{7: 1.7, 1: 11.3} {
		var ns int64
		for _, r := range got.Raws.AppendTo(nil) {
			if r.Rank == rank && r.Kind == "Communication" {
				ns += r.DurNs
			}
		}

		if ms := float64(ns) / 1e6; math.Abs(ms-want) > 0.1 {
			t.Errorf("rank %d has %.2f ms in kernels of NCCL, want %.1f", rank, ms, want)
		}
	}

	for _, r := range got.Rows.Ranks {
		if r.WorldSize != 8 {
			t.Errorf("rank %d of %d", r.Rank, r.WorldSize)
		}
	}
}

// Newer traces say group, type and size, count their times from a base and hold several steps.
func TestKinetoOfToday(t *testing.T) {
	path, ok := sample(t, "kineto/hta-single/nccl_data.json.gz")
	if !ok {
		return
	}

	got := open(t, path, Options{})
	var steps []uint64
	for _, s := range got.Steps {
		steps = append(steps, s.Step)
		if s.StartNs/1e9 != 1716423322 { // 2024-05-23 00:15:22: the base and the host's µs
			t.Errorf("step %d starts at %d", s.Step, s.StartNs)
		}

		if s.FPNs <= 0 || s.ExposedNs < 0 || s.ExposedNs > s.CommNs {
			t.Errorf("step %d: forward %d ns, exposed %d of %d ns", s.Step, s.FPNs, s.ExposedNs, s.CommNs)
		}
	}

	if !slices.Equal(steps, []uint64{4, 5, 6}) {
		t.Errorf("steps %v", steps)
	}

	ops, optimizers := map[string]int{}, 0
	for _, r := range got.Raws.AppendTo(nil) {
		if r.Kind == "optimizer" && r.Side == "device" {
			optimizers++
		}

		if r.Kind != "Communication" {
			continue
		}

		ops[r.Op]++
		if r.Op == "allreduce" && (r.Dtype != "fp32" || r.Bytes != 4*r.Count || r.Count == 0 || r.Group != "0" || r.HostStartNs == 0) {
			t.Errorf("an allreduce: %+v", r)
		}
	}

	if optimizers != 3 {
		t.Errorf("%d steps of the optimizer on the device", optimizers)
	}

	if ops["allreduce"] == 0 || ops["broadcast"] == 0 || len(ops) != 2 {
		t.Errorf("operations %v", ops)
	}

	if r := got.Rows.Ranks[len(got.Rows.Ranks)-1]; len(r.Groups) != 1 || !slices.Equal(r.GroupRanks[0], []uint32{0, 1}) {
		t.Errorf("groups %v of ranks %v", r.Groups, r.GroupRanks)
	}
}

// Other devices' traces are read, and say what they lack.
func TestKinetoOfOneProcess(t *testing.T) {
	for name, steps := range map[string]int{"mi250_minitoy_train_ROCm6_2_kineto.json.gz": 2, "triton_example.json.gz": 1} {
		got := open(t, filepath.Join("testdata/hta", name), Options{})
		if len(got.Steps) != steps || got.Steps[0].CommNs != -1 {
			t.Errorf("%s: %d steps, communication %d ns", name, len(got.Steps), got.Steps[0].CommNs)
		}
	}

	if path, ok := sample(t, "kineto/hta-single/control.json.gz"); ok {
		got := open(t, path, Options{})
		if r := got.Rows.Ranks[0]; len(got.Steps) != 6 || got.Steps[0].Step != 1009 || r.Rank != 3 || r.WorldSize != 8 {
			t.Errorf("control: %d steps, the first %d, rank %d of %d", len(got.Steps), got.Steps[0].Step, r.Rank, r.WorldSize)
		}
	}

	if path, ok := sample(t, "kineto/hta-single/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"); ok {
		got := open(t, path, Options{})
		if r := got.Rows.Ranks[0]; len(got.Steps) != 5 || r.Node != "twshared39868.02.pnb3.facebook.com" || len(got.Unread) != 1 {
			t.Errorf("rank-0: %d steps, node %q, not read: %v", len(got.Steps), r.Node, got.Unread)
		}
	}
}

// plain is a trace of a torch that has no Kineto: the list alone, and times from its own begin.
const plain = `[{"name": "ProfilerStep#3", "ph": "X", "ts": 100, "dur": 1000, "tid": 1, "pid": "CPU functions", "args": {}},
{"name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "ph": "X", "ts": 110, "dur": 40, "tid": 1, "pid": "CPU functions", "args": {}},
{"name": "DistributedDataParallel.forward", "ph": "X", "ts": 160, "dur": 200, "tid": 1, "pid": "CPU functions", "args": {}},
{"name": "aten::mm", "ph": "X", "ts": 400, "dur": 100.5, "tid": 1, "pid": "CPU functions", "args": {}},
{"name": "aten::empty", "ph": "X", "ts": 410, "dur": 5, "tid": 1, "pid": "CPU functions", "args": {}},
{"name": "gloo:all_reduce", "ph": "X", "ts": 450, "dur": 550, "tid": 2, "pid": "CPU functions", "args": {}},
{"name": "gloo:all_reduce", "ph": "X", "ts": 900, "dur": 200, "tid": 3, "pid": "CPU functions", "args": {}}]`

func TestKinetoWithoutKineto(t *testing.T) {
	got := open(t, folderOf(t, map[string]string{"h-1_77.1795379492263.pt.trace.json": plain}), Options{Job: "j"})
	s := got.Steps[0]
	// What mm covers is not exposed, and what two have in common counts once.
	if s.Step != 3 || s.DataLoaderNs != 40e3 || s.FPNs != 200e3 || s.CommNs != 650e3 || s.ExposedNs != 650e3-50500 || s.Flags&row.FlagHostOnly == 0 {
		t.Errorf("%+v", s)
	}

	if r := got.Rows.Ranks[0]; r.Node != "h-1" || r.PID != 77 || s.StartNs != 1795379492263e6-1000e3 {
		t.Errorf("node %q, pid %d, start %d", r.Node, r.PID, s.StartNs)
	}
}

// Whoever reads a file, alone or among others, compressed or not: it gives the same segments.
func TestSameFileSameSegments(t *testing.T) {
	segments := func(dir string) map[string]string {
		got := open(t, dir, Options{Job: "j"})
		all := map[string]string{}
		err := filepath.Walk(got.Dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() && info.Name() != roomLock {
				text, _ := os.ReadFile(path)
				all[strings.TrimPrefix(path, got.Dir)] = string(text)
			}

			return err
		})
		if err != nil || len(all) == 0 {
			t.Fatal(err, len(all))
		}

		return all
	}
	both := segments(folderOf(t, map[string]string{"rank1.json": plain, "rank0.json": plain + " "}))
	alone := segments(folderOf(t, map[string]string{"x/rank1.json": plain}))
	for name, text := range alone {
		if both[name] != text {
			t.Errorf("%s differs:\n%s\n%s", name, text, both[name])
		}
	}

	if len(both) != 2 || len(alone) != 1 {
		t.Errorf("%d and %d segments", len(both), len(alone))
	}
}

// What is damaged, cut, mixed or missing is told by file and cause, and the rest is read.
func TestDamagedProfiles(t *testing.T) {
	cut := plain[:strings.Index(plain, `{"name": "aten::empty"`)+20]
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string // in the error or, where there is none, in the words
	}{
		{"empty folder", nil, []string{"no profile in it", "no file at all"}},
		{"empty file", map[string]string{"rank0.json": ""}, []string{"no profile in it", "rank0.json is empty"}},
		{"something else", map[string]string{"readme.txt": "hello"}, []string{"no profile in it", "readme.txt", "PyTorch profiler"}},
		{"cut", map[string]string{"rank0.json": cut}, []string{"rank0.json", "cut: it ends in the middle"}},
		{"cut.gz", map[string]string{"rank0.json.gz": cut}, []string{"rank0.json.gz", "cut: it ends in the middle"}},
		{"damaged", map[string]string{"rank0.json": strings.Replace(plain, `"dur": 5,`, `"dur" 5,`, 1)}, []string{"rank0.json", "at byte", "colon"}},
		{"one of two", map[string]string{"rank0.json": plain, "rank1.json": `{"schemaVersion": 1, "traceEvents": [{"ph": "X"`}, []string{"rank1.json", "cut"}},
		{"nothing in it", map[string]string{"rank0.json": `{"schemaVersion": 1, "traceEvents": []}`}, []string{"rank0.json", "no event"}},
		{"two jobs", map[string]string{"a/rank0.json": plain, "b/rank0.json": plain + " "}, []string{"a/rank0.json", "b/rank0.json", "both hold rank 0", "taken from their names: call them rank<N>.json"}},
		{"two worlds", map[string]string{
			"rank0.json": `{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": ` + plain + `}`,
			"rank1.json": `{"schemaVersion": 1, "distributedInfo": {"rank": 1, "world_size": 4}, "traceEvents": ` + plain + `}`,
		}, []string{"job of 2 ranks", "one of 4", "rank1.json"}},
		{"a copy", map[string]string{"rank0.json": plain, "rank0-copy.json": plain}, []string{"a copy of", "rank0", "counted once"}},
		{"no step", map[string]string{"rank0.json": strings.Replace(plain, "ProfilerStep#3", "step three", 1)}, []string{"rank0.json", "marks no step"}},
		{"no rank", map[string]string{"x.json": plain}, []string{"x.json", "tells no rank"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree, err := Open(t.Context(), folderOf(t, c.files), Options{})
			var said string
			if err != nil {
				said = err.Error()
			} else {
				said = strings.Join(append(Sentences(tree.Unread), Sentences(tree.Notes)...), "\n")
				rowsOf(t, tree)
				if err := tree.Close(); err != nil {
					t.Error(err)
				}

				if _, err := os.Stat(tree.Dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left: %v", tree.Dir, err)
				}
			}

			for _, w := range c.want {
				if !strings.Contains(said, w) {
					t.Errorf("it does not say %q: %s", w, said)
				}
			}
		})
	}
}

// A link in a folder of somebody else's is not followed.
func TestNoLinkFollowed(t *testing.T) {
	secret := folderOf(t, map[string]string{"rank0.json": plain})
	dir := folderOf(t, nil)
	for name, to := range map[string]string{"rank0.json": filepath.Join(secret, "rank0.json"), "sub": secret} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := Open(t.Context(), dir, Options{}); !errors.Is(err, ErrNone) {
		t.Errorf("opened: %v", err)
	}
}

// What a process that was killed has left behind is removed by the next one, and what a living one
// uses is not.
func TestRoomOfTheKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, lock, err := room()
	if err != nil {
		t.Fatal(err)
	}

	other, _, err := room()
	if _, gone := os.Stat(dir); err != nil || gone != nil {
		t.Fatalf("a living one's: %v, %v", gone, err)
	}

	if err := lock.Close(); err != nil { // as the kernel does
		t.Fatal(err)
	}

	if _, _, err := room(); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead one's is left: %v", err)
	}

	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}
