package ageing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var epoch = time.Unix(1753000000, 0)

// testTree is a profiling directory to age, and the account of what went.
type testTree struct {
	t      testing.TB
	dir    string
	ledger []row.Ledger
	log    bytes.Buffer
}

func newTestTree(t testing.TB) *testTree { return &testTree{t: t, dir: t.TempDir()} }

// write makes a file of size bytes that was last touched age after epoch.
func (g *testTree) write(path string, size int, age time.Duration) string {
	g.t.Helper()
	full := filepath.Join(g.dir, path)
	must(g.t, os.MkdirAll(filepath.Dir(full), 0o755))
	must(g.t, os.WriteFile(full, bytes.Repeat([]byte{'x'}, size), 0o644))
	must(g.t, os.Chtimes(full, epoch.Add(age), epoch.Add(age)))
	return full
}

// options has everything quiet: no rank is live.
func (g *testTree) options(limit int64) Options {
	return Options{
		Dir: g.dir, Cap: limit, SegmentLimit: 100, Log: slog.New(slog.NewTextHandler(&g.log, nil)),
		Now:  func() time.Time { return epoch.Add(24 * time.Hour) },
		Rank: func(segment.RankDir) (owned, live bool) { return true, false },
		Account: func(rows []row.Ledger) error {
			g.ledger = append(g.ledger, rows...)
			return nil
		},
	}
}

func (g *testTree) loop(o Options) *Loop {
	g.t.Helper()
	l, err := New(o)
	must(g.t, err)
	return l
}

// left returns the files of the tree, without directories.
func (g *testTree) left() []string {
	g.t.Helper()
	var all []string
	must(g.t, filepath.WalkDir(g.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(g.dir, path)
			all = append(all, rel)
		}

		return err
	}))
	return all
}

func TestLook_DeletesTheOldestFifthAndNothingElse(t *testing.T) {
	g := newTestTree(t)
	for i := range 10 {
		g.write(fmt.Sprintf("j1/%d/%d", i%2, 100+i), 100, time.Duration(i)*time.Second)
	}

	foreign := []string{
		"j1/0/parallel_group.json", "j1/0/100.txt", "j1/0/.100.zst.tmp", "j1/notes", "j1/x/100", "j1/100", "100", ".laggard/ledger",
		".hidden/0/100", "j1/007/100",
	}
	for _, path := range foreign {
		g.write(path, 1, -time.Hour)
	}

	outside := filepath.Join(t.TempDir(), "100")
	must(t, os.WriteFile(outside, []byte("x"), 0o644))
	must(t, os.Symlink(outside, filepath.Join(g.dir, "j1/0/50")))
	must(t, os.Symlink(filepath.Dir(outside), filepath.Join(g.dir, "j1/9")))

	l := g.loop(g.options(1000 + int64(len(foreign))))
	must(t, l.look(t.Context()))
	if s := l.Stats(); s.Segments != 0 {
		t.Fatalf("deleted %d at the cap", s.Segments)
	}

	l.o.Cap--
	must(t, l.look(t.Context()))
	left := g.left()
	for _, path := range append(foreign, "j1/0/50", "j1/0/102", "j1/1/103") {
		if !slices.Contains(left, path) {
			t.Errorf("%s is gone", path)
		}
	}

	if slices.Contains(left, "j1/0/100") || slices.Contains(left, "j1/1/101") || len(left) != len(foreign)+1+8+1 {
		t.Errorf("left: %v", left)
	}

	s := l.Stats()
	if s.Segments != 2 || s.Bytes != 200 || s.Over != 0 || s.Tree != 800+int64(len(foreign)) {
		t.Errorf("Stats=%+v", s)
	}

	if !strings.Contains(g.log.String(), "deleted=2 shipped=0 unshipped=2") {
		t.Errorf("log: %s", &g.log)
	}
}

func TestLook_ShippedFirstNewestAndOpenNever(t *testing.T) {
	g := newTestTree(t)
	for i := range 5 {
		g.write(fmt.Sprintf("j1/0/%d", 100+i), 100, time.Duration(i)*time.Second)
		g.write(fmt.Sprintf("gone/7/%d", 200+i), 100, time.Duration(10+i)*time.Second) // an orphaned job
		g.write(fmt.Sprintf("j1/5/%d", 300+i), 100, -time.Hour)                        // another agent's
	}

	o := g.options(1)
	o.Rank = func(r segment.RankDir) (owned, live bool) { return r.Rank == 0 || r.Job == "gone", r.Job != "gone" }
	o.Held = func(r segment.RankDir, s segment.Info) bool { return r.Rank == 0 && s.Name == "101" }
	o.Shipped = func(_ segment.RankDir, s segment.Info) bool { return s.Number >= 202 || s.Number == 103 }
	released := []string{}
	o.Release = func(_ segment.RankDir, s segment.Info, account func() error) error {
		released = append(released, s.Name)
		return account()
	}
	l := g.loop(o)
	if err := l.look(t.Context()); err == nil || !strings.Contains(err.Error(), "raise --cap") {
		t.Errorf("a tree that stays over its cap: %v", err)
	}

	if got := fmt.Sprint(released); got != "[100 102 200 201]" {
		t.Errorf("released %s: shipped ones must not be, the order is by time", got)
	}

	want := []string{"j1/0/101", "j1/0/104", "j1/5/300", "j1/5/301", "j1/5/302", "j1/5/303", "j1/5/304"}
	if got := g.left(); !slices.Equal(got, want) {
		t.Errorf("left: %v", got)
	}

	if s := l.Stats(); s.Segments != 8 || s.Shipped != 4 || s.Over != 700-1 {
		t.Errorf("Stats=%+v", s)
	}

	for _, r := range g.ledger {
		if r.State == stateAged && r.Bytes != 100 {
			t.Errorf("entry: %+v", r)
		}
	}
}

// TestLook_AccountsBeforeUnlink: no ledger, no deletion; and an unlink that fails
// is not accounted for twice.
func TestLook_AccountsBeforeUnlink(t *testing.T) {
	g := newTestTree(t)
	for i := range 3 {
		g.write(fmt.Sprintf("j1/0/%d", 100+i), 100, time.Duration(i))
	}

	o := g.options(250)
	broken := errors.New("disk full")
	account := o.Account
	o.Account = func(rows []row.Ledger) error {
		if broken != nil {
			return broken
		}

		if _, err := os.Stat(filepath.Join(g.dir, "j1/0", rows[0].Name)); err != nil {
			t.Errorf("unlinked before the ledger knew: %v", err)
		}

		return account(rows)
	}
	l := g.loop(o)
	if err := l.look(t.Context()); !errors.Is(err, broken) {
		t.Errorf("look=%v", err)
	}

	if n := len(g.left()); n != 3 {
		t.Fatalf("%d files are left without an account", n)
	}

	broken = nil
	o.Release = func(segment.RankDir, segment.Info, func() error) error { return errors.New("busy") }
	l = g.loop(o)
	if err := l.look(t.Context()); err == nil || len(g.left()) != 3 || len(g.ledger) != 0 {
		t.Errorf("a segment that the shipper holds went: %v", err)
	}

	// The unlink fails: a file that was replaced meanwhile is not removed.
	path := filepath.Join(g.dir, "j1/0/100")
	o.Release = nil
	o.Account = func(rows []row.Ledger) error {
		if len(g.ledger) == 0 {
			must(t, os.Rename(path, path+".away"))
			g.write("j1/0/100", 100, 0)
		}

		return account(rows)
	}
	l = g.loop(o)
	if err := l.look(t.Context()); err == nil || len(g.ledger) != 2 {
		t.Errorf("look=%v, %d entries", err, len(g.ledger))
	}

	l.o.Cap = 350
	must(t, l.look(t.Context()))
	if len(g.ledger) != 2 || slices.Contains(g.left(), "j1/0/100") {
		t.Errorf("%d entries, left %v", len(g.ledger), g.left())
	}
}

// TestLook_TwinsAreLostOnce: a crash between the two names of a compression leaves
// both; the records are lost with the second of them.
func TestLook_TwinsAreLostOnce(t *testing.T) {
	g := newTestTree(t)
	g.write("j1/0/100", 100, 0)
	g.write("j1/0/100.zst", 50, 0)
	g.write("j1/0/101", 100, time.Second)
	l := g.loop(g.options(200))
	must(t, l.look(t.Context()))
	if left := g.left(); !slices.Equal(left, []string{"j1/0/100.zst", "j1/0/101"}) || len(g.ledger) != 0 {
		t.Errorf("left %v, ledger %+v; want the compressed one, and nothing lost", left, g.ledger)
	}

	l.o.Cap = 120
	must(t, l.look(t.Context()))
	aged := 0
	for _, r := range g.ledger {
		if r.State == stateAged {
			aged++
		}
	}

	if left := g.left(); !slices.Equal(left, []string{"j1/0/101"}) || aged != 1 {
		t.Errorf("left %v, ledger %+v; want one entry of what is lost", left, g.ledger)
	}
}

// TestLook_UnreadableSegmentIsSpared: while nobody can tell what a segment holds it
// stays, but not for ever.
func TestLook_UnreadableSegmentIsSpared(t *testing.T) {
	g := newTestTree(t)
	for i := range 3 {
		g.write(fmt.Sprintf("j1/0/%d", 100+i), 100, time.Duration(i))
	}

	o := g.options(250)
	o.Held = func(_ segment.RankDir, s segment.Info) bool { return s.Name != "100" }
	o.Release = func(_ segment.RankDir, _ segment.Info, account func() error) error {
		var limit unix.Rlimit
		must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
		none := unix.Rlimit{Cur: 3, Max: limit.Max}
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none)) // nothing can be opened
		err := account()
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
		return err
	}
	l := g.loop(o)
	for range readTries - 1 {
		if err := l.look(t.Context()); !errors.Is(err, unix.EMFILE) || len(g.left()) != 3 || len(g.ledger) != 0 {
			t.Fatalf("look=%v, left %v, %d entries", err, g.left(), len(g.ledger))
		}
	}

	must(t, l.look(t.Context()))
	if len(g.left()) != 2 || len(g.ledger) != 1 {
		t.Errorf("left %v, %d entries", g.left(), len(g.ledger))
	}
}

// TestLook_FinishesAnInterruptedDeletion: the process died between ledger and unlink.
func TestLook_FinishesAnInterruptedDeletion(t *testing.T) {
	g := newTestTree(t)
	g.write("j1/0/100", 100, 0)
	g.write("j1/0/101", 100, 0)
	o := g.options(1000)
	o.Accounted = func(_ segment.RankDir, s segment.Info) bool { return s.Name == "100" }
	l := g.loop(o)
	must(t, l.look(t.Context()))
	if got := g.left(); !slices.Equal(got, []string{"j1/0/101"}) || len(g.ledger) != 0 {
		t.Errorf("left %v, ledger %v", got, g.ledger)
	}

	// The rank is ours from a later look on.
	g.write("j1/1/100", 100, 0)
	g.write("j1/1/101", 100, 0)
	must(t, l.look(t.Context()))
	if got := g.left(); !slices.Equal(got, []string{"j1/0/101", "j1/1/101"}) || len(g.ledger) != 0 {
		t.Errorf("left %v, ledger %v", got, g.ledger)
	}
}

func TestLook_DefaultLiveness(t *testing.T) {
	g := newTestTree(t)
	g.write("old/0/100", 100, 0)
	g.write("old/0/101", 100, 0)
	g.write("new/0/100", 100, 24*time.Hour-time.Minute)
	o := g.options(1)
	o.Rank = nil
	l := g.loop(o)
	if err := l.look(t.Context()); err == nil {
		t.Error("nothing says that the tree is over its cap")
	}

	if got := g.left(); !slices.Equal(got, []string{"new/0/100"}) {
		t.Errorf("left %v", got)
	}
}

func TestLook_Troubles(t *testing.T) {
	g := newTestTree(t)
	o := g.options(1)
	o.Dir = filepath.Join(g.dir, "nowhere")
	l := g.loop(o)
	if err := l.look(t.Context()); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("look=%v", err)
	}

	for _, bad := range []Options{{}, {Dir: "x"}, {Dir: "x", Cap: 1}} {
		if _, err := New(bad); err == nil {
			t.Errorf("New(%+v) works", bad)
		}
	}
}

func TestRun_LooksEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestTree(t)
		o := g.options(50)
		o.Interval = time.Minute
		l := g.loop(o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		g.write("j1/0/100", 100, 0)
		g.write("j1/0/101", 10, time.Second)
		time.Sleep(time.Minute) // virtual
		synctest.Wait()
		if got := l.Stats(); got.Segments != 1 || got.Looks != 2 {
			t.Errorf("%d deleted after an interval, %d looks", got.Segments, got.Looks)
		}

		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run=%v", err)
		}
	})
}

// TestMakeRoom_LooksOnlyWhenItMustBe: a hundred segments are begun, and the tree is
// never over its cap, with room for the open one; but it is looked at a few times only.
func TestMakeRoom_LooksOnlyWhenItMustBe(t *testing.T) {
	g := newTestTree(t)
	const size, limit = 100, 20 * 100
	o := g.options(limit)
	o.Rank = func(segment.RankDir) (owned, live bool) { return true, true }
	l := g.loop(o)
	for i := range 100 {
		name := fmt.Sprintf("j1/0/%d", 100+i)
		g.write(name, 0, time.Duration(i)*time.Second)
		l.MakeRoom(t.Context())
		g.write(name, size, time.Duration(i)*time.Second) // it fills up
		if n := len(g.left()) * size; n > limit {
			t.Fatalf("%d bytes after segment %d, cap %d", n, i, limit)
		}
	}

	if s := l.Stats(); s.Looks > 40 || s.Segments < 80 || s.Over != 0 {
		t.Errorf("%d looks for 100 segments, %d deleted", s.Looks, s.Segments)
	}

	// What others write is found by the next look.
	g.write("j2/0/100", limit, -time.Hour)
	g.write("j2/0/101", 0, 0)
	must(t, l.look(t.Context()))
	if left := g.left(); slices.Contains(left, "j2/0/100") || !slices.Contains(left, "j2/0/101") {
		t.Errorf("left %v", left)
	}
}

func TestSay_TroubleIsLoggedWhenItIsNews(t *testing.T) {
	g := newTestTree(t)
	o := g.options(1)
	now := epoch
	o.Now = func() time.Time { return now }
	l := g.loop(o)
	for i := range 100 {
		l.say(fmt.Errorf("%d bytes over", i))
		now = now.Add(time.Second)
	}

	l.say(nil)
	l.say(nil)
	if n := strings.Count(g.log.String(), "has trouble"); n != 4 {
		t.Errorf("%d warnings in 100 s, want 4", n)
	}

	if n := strings.Count(g.log.String(), "works again"); n != 1 {
		t.Errorf("%d all-clears", n)
	}
}
