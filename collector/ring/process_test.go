package ring

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

func TestFitKeepsTheBudget(t *testing.T) {
	left, n := int64(budget-processSize), uint32(0)
	for {
		light, bulk, ok := fit(n+1, left)
		if !ok {
			break
		}

		n++
		if n <= fullRings && (light != LightSlots || bulk != bulkSlots) {
			t.Errorf("ring %d has %d and %d slots, want full size", n, light, bulk)
		}

		if !validSize(light) || !validSize(bulk) || light < minSlots || bulk < minSlots {
			t.Errorf("ring %d has %d and %d slots", n, light, bulk)
		}

		left -= fileSize(light, bulk)
	}

	if left < 0 || n != 107 {
		t.Errorf("%d rings, %d bytes left", n, left)
	}
}

func TestHandOver(t *testing.T) {
	p, f := create(t, shared(t))
	thread := func(n uint32) uint64 {
		r, err := f.OpenReader(n)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		c, _ := r.Counters()
		return c.Thread
	}
	a, _ := p.NewWriter(11)
	a.Close()
	b, _ := p.NewWriter(12)
	if a != b || thread(1) != 12 {
		t.Error("a drained ring was not handed on")
	}

	s := fields{Kind: record.FP, Peer: -1}
	b.Publish(s.slot())
	b.Close()
	c, _ := p.NewWriter(13)
	if c == b || thread(1) != 12 || thread(2) != 13 {
		t.Error("an undrained ring was handed on while there was room for more")
	}

	d, _ := p.NewWriter(14)
	e, _ := p.NewWriter(15)
	g, err := p.NewWriter(16)
	if err != nil || d == nil || e == nil || g != b || thread(1) != 0 {
		t.Errorf("the fifth thread got another ring than the closed one: %v, thread %d", err, thread(1))
	}
}

func TestBudgetEnds(t *testing.T) {
	p, _ := create(t, shared(t))
	var err error
	n := 0
	for ; n < 200; n++ {
		if _, err = p.NewWriter(uint64(n)); err != nil {
			break
		}
	}

	if err == nil || n != 107 {
		t.Fatalf("%d rings, then %v", n, err)
	}

	if p.used > budget {
		t.Errorf("%d bytes used", p.used)
	}
}

func TestStrings(t *testing.T) {
	s := NewStrings()
	early := s.Intern("before the folder")
	id, err := Self()
	if err != nil {
		t.Fatal(err)
	}

	run := shared(t)
	p, err := Create(run, id, s, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	late := s.Intern("after it")
	if s.Intern("after it") != late || s.Intern("") != 0 {
		t.Error("ids are not stable")
	}

	if s.Intern(strings.Repeat("x", stringsSize)) != 0 {
		t.Error("a string larger than the area got an id")
	}

	f, err := OpenFolder(run, id.Incarnation.String())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Status()
	if err != nil {
		t.Fatal(err)
	}

	if err := f.ReadTexts(st); err != nil {
		t.Fatal(err)
	}

	for id, want := range map[uint16]string{0: "", early: "before the folder", late: "after it"} {
		if got, ok := f.Text(id); !ok || got != want {
			t.Errorf("Text(%d) = %q, %v", id, got, ok)
		}
	}

	if _, ok := f.Text(late + 1); ok || *p.u64(pLostStrings) != 1 {
		t.Errorf("unknown id known, or %d lost strings", *p.u64(pLostStrings))
	}
}

func TestGone(t *testing.T) {
	p, f := create(t, shared(t))
	if f.Gone(Live) {
		t.Error("a living process is gone")
	}

	p.Close()
	s, _ := f.Status()
	if !f.Gone(s.State) {
		t.Error("a closed recorder is not gone")
	}

	if ok, err := f.Lock(); !ok || err != nil {
		t.Fatalf("Lock = %v, %v", ok, err)
	}

	g, err := OpenFolder(filepath.Dir(f.path()), f.name)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if ok, err := g.Lock(); ok || err != nil {
		t.Errorf("a second agent got the lock: %v, %v", ok, err)
	}

	if err := f.Remove(); err != nil {
		t.Error(err)
	}

	if _, err := os.Stat(f.path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// TestCreateLeavesNothing makes each way to fail happen.
func TestCreateLeavesNothing(t *testing.T) {
	id, err := Self()
	if err != nil {
		t.Fatal(err)
	}

	t.Run("small tmpfs", func(t *testing.T) {
		dir := tmpfs(t, "size=128k")
		if _, err := Create(filepath.Join(dir, "run"), id, NewStrings(), 0); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("Create = %v, want ENOSPC", err)
		}

		empty(t, filepath.Join(dir, "run"))
	})
	t.Run("room for the folder only", func(t *testing.T) {
		dir := tmpfs(t, "size=400k")
		p, err := Create(filepath.Join(dir, "run"), id, NewStrings(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := p.NewWriter(1); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("NewWriter = %v, want ENOSPC", err)
		}

		if n := len(p.rings); n != 0 {
			t.Errorf("%d rings", n)
		}
	})
	t.Run("folder is there", func(t *testing.T) {
		run := shared(t)
		p, _ := create(t, run)
		if _, err := Create(run, p.Identity, NewStrings(), 0); err == nil {
			t.Error("a second folder of one process was made")
		}

		names, _ := os.ReadDir(run)
		if len(names) != 1 {
			t.Errorf("left behind: %v", names)
		}
	})
	t.Run("run directory is a link", func(t *testing.T) {
		run := shared(t)
		if err := os.Symlink(t.TempDir(), run); err != nil {
			t.Fatal(err)
		}

		if _, err := Create(run, id, NewStrings(), 0); err == nil {
			t.Error("a symbolic link was followed")
		}
	})
}

func TestSweepRemovesHalfMadeFolders(t *testing.T) {
	run := shared(t)
	fresh := filepath.Join(run, ".00000000000000aa.new")
	other := filepath.Join(run, ".00000000000000aa.old")
	for _, d := range []string{fresh, other} {
		if err := os.MkdirAll(d, 0o770); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(d, ProcessName), nil, 0o660); err != nil {
			t.Fatal(err)
		}
	}

	now := time.Now()
	if n, err := Sweep(run, now.Add(-time.Minute)); n != 0 || err != nil {
		t.Errorf("Sweep of a fresh one = %d, %v", n, err)
	}

	if n, err := Sweep(run, now.Add(time.Minute)); n != 1 || err != nil {
		t.Errorf("Sweep of an old one = %d, %v", n, err)
	}

	names, _ := os.ReadDir(run)
	if len(names) != 1 || names[0].Name() != filepath.Base(other) {
		t.Errorf("left: %v", names)
	}
}

// TestSweepFinishesARemoval: an agent was killed while it removed a folder.
func TestSweepFinishesARemoval(t *testing.T) {
	run := shared(t)
	gone := filepath.Join(run, ".00000000000000aa.gone")
	if err := os.MkdirAll(gone, 0o770); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"ring-1", LockName} {
		if err := os.WriteFile(filepath.Join(gone, name), nil, 0o660); err != nil {
			t.Fatal(err)
		}
	}

	if n, err := Sweep(run, time.Now().Add(-time.Hour)); n != 1 || err != nil {
		t.Errorf("Sweep = %d, %v", n, err)
	}

	if names, _ := os.ReadDir(run); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
}

// TestSweepRemovesEmptiedFolders: one was removed where the run directory lets nobody
// rename, and the agent was killed before the end.
func TestSweepRemovesEmptiedFolders(t *testing.T) {
	run := shared(t)
	files := map[string]string{"00000000000000aa": "", "00000000000000ab": LockName, "00000000000000ac": "ring-1"}
	for name, file := range files {
		if err := os.MkdirAll(filepath.Join(run, name), 0o770); err != nil {
			t.Fatal(err)
		}

		if file == "" {
			continue
		}

		if err := os.WriteFile(filepath.Join(run, name, file), nil, 0o660); err != nil {
			t.Fatal(err)
		}
	}

	now := time.Now()
	if n, err := Sweep(run, now.Add(-time.Minute)); n != 0 || err != nil {
		t.Errorf("Sweep of fresh ones = %d, %v", n, err)
	}

	if n, err := Sweep(run, now.Add(time.Minute)); n != 2 || err != nil {
		t.Errorf("Sweep of old ones = %d, %v", n, err)
	}

	if names, _ := os.ReadDir(run); len(names) != 1 || names[0].Name() != "00000000000000ac" {
		t.Errorf("left: %v", names)
	}
}

// TestRemove_KeepsTheProcessFileToTheLast: a removal that fails in the middle leaves a
// folder that can be opened, and removed once more.
func TestRemove_KeepsTheProcessFileToTheLast(t *testing.T) {
	run := shared(t)
	p, _ := create(t, run)
	if _, err := p.NewWriter(1); err != nil {
		t.Fatal(err)
	}

	name := p.Identity.Incarnation.String()
	planted, other := filepath.Join(run, name, "planted"), filepath.Join(run, "."+name+goneSuffix)
	if err := os.Mkdir(planted, 0o770); err != nil {
		t.Fatal(err)
	}

	if err := os.MkdirAll(filepath.Join(other, "planted"), 0o770); err != nil { // so the folder keeps its name
		t.Fatal(err)
	}

	remove := func() error {
		f, err := OpenFolder(run, name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return f.Remove()
	}
	if err := remove(); err == nil || !strings.Contains(err.Error(), "planted") {
		t.Fatalf("Remove()=%v", err)
	}

	if err := os.Remove(planted); err != nil {
		t.Fatal(err)
	}

	if err := remove(); err != nil {
		t.Fatal(err)
	}

	if names, _ := os.ReadDir(run); len(names) != 1 || names[0].Name() != filepath.Base(other) {
		t.Errorf("left: %v", names)
	}
}

// TestFoldersKeepSetgid: a volume that a pod's fsGroup shares has setgid folders;
// those made in it must belong to the group and hand it on.
func TestFoldersKeepSetgid(t *testing.T) {
	volume := filepath.Join(filepath.Dir(shared(t)), "volume")
	const group = 4711
	if err := errors.Join(os.Mkdir(volume, 0o770), unix.Chown(volume, -1, group)); err != nil {
		t.Skipf("NOT TESTED: a folder of another group, because making one needs root: %v", err)
	}

	if err := unix.Chmod(volume, 0o2770); err != nil {
		t.Fatal(err)
	}

	defer unix.Umask(unix.Umask(0o077))
	run := filepath.Join(volume, "run")
	p, _ := create(t, run)
	if _, err := p.NewWriter(1); err != nil {
		t.Fatal(err)
	}

	dir := filepath.Join(run, p.Identity.Incarnation.String())
	for path, mode := range map[string]uint32{run: 0o3777, dir: 0o2770, filepath.Join(dir, ProcessName): 0o660, filepath.Join(dir, "ring-1"): 0o660} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}

		if st.Gid != group || st.Mode&0o7777 != mode {
			t.Errorf("%s has group %d and mode %o, want %d and %o", path, st.Gid, st.Mode&0o7777, group, mode)
		}
	}
}
