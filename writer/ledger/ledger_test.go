package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *Ledger {
	t.Helper()
	l, err := Open(dir)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func entries(t testing.TB, dir string) []row.Ledger {
	t.Helper()
	var all []row.Ledger
	bad, err := Read(dir, func(r row.Ledger) error { all = append(all, r); return nil })
	must(t, err)
	if bad != 0 {
		t.Fatalf("%d bad lines", bad)
	}

	return all
}

func numbered(i int) row.Ledger {
	return row.Ledger{Job: "j1", Rank: 3, Name: fmt.Sprint(i), State: "aged", Reason: "aged", Kind: "Step", Records: uint64(i)}
}

// filled returns an entry with a value in every field.
func filled(t *testing.T) row.Ledger {
	var r row.Ledger
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(fmt.Sprintf("field %d \"quoted\"\n", i))
		case reflect.Int64:
			f.SetInt(int64(i + 1))
		case reflect.Uint32, reflect.Uint64:
			f.SetUint(^uint64(0) >> (i + 32*int(8-f.Type().Size())/4))
		default:
			t.Fatalf("field %d is a %s", i, f.Kind())
		}
	}

	return r
}

func TestLedger_KeepsEveryField(t *testing.T) {
	dir := t.TempDir()
	want := []row.Ledger{filled(t), {}, numbered(1)}
	l := open(t, dir)
	must(t, l.Append(want...))
	must(t, l.Append())
	if d := cmp.Diff(want, entries(t, dir)); d != "" {
		t.Error(d)
	}

	data, err := os.ReadFile(Path(dir))
	must(t, err)
	const golden = `{"job":"j1","rank":3,"incarnation":"0000000000000000","segment":"0000000000000000","name":"1","state":"aged","reason":"aged","kind":"Step","records":1,"part":3,"of":3}`
	if !strings.HasSuffix(string(data), "\n"+golden+"\n") {
		t.Errorf("last line of %s\nwant %s", data, golden)
	}
}

func TestRead_NoLedger(t *testing.T) {
	if bad, err := Read(t.TempDir(), nil); bad != 0 || err != nil {
		t.Errorf("Read=%d, %v", bad, err)
	}
}

func TestRead_BadLinesAreCounted(t *testing.T) {
	dir := t.TempDir()
	must(t, open(t, dir).Append(numbered(1)))
	f, err := os.OpenFile(Path(dir), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("garbage\n" + strings.Repeat("x", maxLine+10) + "\n")
	must(t, err)
	must(t, open(t, dir).Append(numbered(2)))
	n := 0
	bad, err := Read(dir, func(row.Ledger) error { n++; return nil })
	if bad != 2 || n != 2 || err != nil {
		t.Errorf("%d bad, %d good, %v", bad, n, err)
	}
}

// TestOpen_TornAtEveryByte cuts the file at every byte, as a loss of power does: of
// what was appended together all counts or nothing, and what comes later is there.
func TestOpen_TornAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	must(t, l.Append(numbered(1)))
	must(t, l.Append(numbered(2), numbered(3), numbered(4)))
	must(t, l.Append(numbered(5)))
	data, err := os.ReadFile(Path(dir))
	must(t, err)
	for cut := range len(data) + 1 {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Dir(Path(dir)), 0o755))
		must(t, os.WriteFile(Path(dir), data[:cut], 0o644))
		lines := strings.Count(string(data[:cut]), "\n")
		whole := map[int]int{0: 0, 1: 1, 2: 1, 3: 1, 4: 4, 5: 5}[lines]
		must(t, open(t, dir).Append(numbered(9)))
		var got []string
		bad, err := Read(dir, func(r row.Ledger) error { got = append(got, r.Name); return nil })
		must(t, err)
		if len(got) != whole+1 || got[whole] != "9" || bad != lines-whole {
			t.Fatalf("cut at %d: entries %v and %d bad lines, want %d and %d", cut, got, bad, whole+1, lines-whole)
		}
	}
}

// faultyFile fails calls of a number, half a write done before.
type faultyFile struct {
	*os.File
	f *fault
}

type fault struct {
	calls, from, to int
	names           []string
}

func (f *fault) fail(name string) error {
	f.calls++
	f.names = append(f.names, name)
	if f.calls > f.from && f.calls <= f.to {
		return fmt.Errorf("%s: %w", name, syscall.EIO)
	}

	return nil
}

func (f faultyFile) Write(b []byte) (int, error) {
	if err := f.f.fail("write"); err != nil {
		n, _ := f.File.Write(b[:2*len(b)/3])
		return n, err
	}

	return f.File.Write(b)
}

func (f faultyFile) Sync() error {
	if err := f.f.fail("sync"); err != nil {
		return err
	}

	return f.File.Sync()
}

func (f faultyFile) Truncate(size int64) error {
	if err := f.f.fail("truncate"); err != nil {
		return err
	}

	return f.File.Truncate(size)
}

func (f faultyFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.f.fail("read"); err != nil {
		return 0, err
	}

	return f.File.ReadAt(b, at)
}

func (f faultyFile) Stat() (fs.FileInfo, error) {
	if err := f.f.fail("stat"); err != nil {
		return nil, err
	}

	return f.File.Stat()
}

// faulty opens a ledger whose file fails.
func faulty(dir string, f *fault) (*Ledger, error) {
	return openWith(dir, func(path string) (file, error) {
		opened, err := openFile(path)
		if err != nil {
			return nil, err
		}

		return faultyFile{opened.(*os.File), f}, nil
	})
}

// TestClose_TakesBackWhatFailed: the rows of an Append that failed do not count, also
// when nothing is appended after it.
func TestClose_TakesBackWhatFailed(t *testing.T) {
	left := 0
	count := func(dir string) (n int) {
		_, err := Read(dir, func(row.Ledger) error { n++; return nil })
		must(t, err)
		return n
	}
	for at := range 12 {
		dir, f := t.TempDir(), &fault{from: 100}
		l, err := faulty(dir, f)
		must(t, err)
		f.from, f.to = f.calls+at, f.calls+at+3
		appended := l.Append(numbered(0), numbered(1)) == nil
		if count(dir) == 2 && !appended {
			left++
		}

		must(t, l.Close())
		if n := count(dir); n != 0 && !appended || n != 2 && appended {
			t.Errorf("failing from call %d on: appended %v, %d entries %v", at, appended, n, f.names)
		}
	}

	if left == 0 {
		t.Error("the test shows nothing: no Append left rows behind")
	}
}

// TestAppend_EachCallFails: after an error nothing of the rows counts, after a
// repeat they stand once.
func TestAppend_EachCallFails(t *testing.T) {
	run := func(f *fault) int {
		dir := t.TempDir()
		l, err := faulty(dir, f)
		if err != nil {
			f.to = 0 // Open failed: that is told, and the next one works
			l, err = Open(dir)
			must(t, err)
		}
		defer l.Close()
		for i := range 4 {
			for tries := 0; ; tries++ {
				err := l.Append(numbered(2*i), numbered(2*i+1))
				if err == nil {
					break
				}

				if !errors.Is(err, syscall.EIO) || tries > 50 {
					t.Fatalf("failing from call %d to %d %v: %v", f.from, f.to, f.names, err)
				}
			}
		}

		got := entries(t, dir)
		if len(got) != 8 {
			t.Fatalf("failing from call %d to %d %v: %d entries", f.from, f.to, f.names, len(got))
		}

		for i, r := range got {
			if r.Name != fmt.Sprint(i) {
				t.Fatalf("failing from call %d to %d: entry %d is %s", f.from, f.to, i, r.Name)
			}
		}

		return f.calls
	}
	total := run(&fault{})
	if total < 15 {
		t.Fatalf("%d calls only", total)
	}

	for at := range total {
		for _, calls := range []int{1, 2, 3, 7} {
			run(&fault{from: at, to: at + calls})
		}
	}
}

// TestAppend_ManyAtOnce: entries stay whole beside others that append and others that put
// a copy in the file's place.
func TestAppend_ManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	const ledgers, n = 4, 25
	var wg sync.WaitGroup
	for i := range ledgers {
		l := open(t, dir) // like another process: flock is per open file
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range n {
				if err := l.Append(numbered(i*n+k), numbered(i*n+k)); err != nil {
					t.Error(err)
				}

				if k == n/2 { // as after an Append that failed
					l.mu.Lock()
					if err := l.locked(l.drop); err != nil {
						t.Error(err)
					}

					l.mu.Unlock()
				}
			}
		}()
	}

	wg.Wait()
	count := make(map[string]int)
	for _, r := range entries(t, dir) {
		count[r.Name]++
	}

	for i := range ledgers * n {
		if count[fmt.Sprint(i)] != 2 {
			t.Errorf("entry %d stands %d times", i, count[fmt.Sprint(i)])
		}
	}
}

func TestAged(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	zst, stored := numbered(7), numbered(8)
	zst.Name, stored.State = "7.zst", "stored"
	must(t, l.Append(numbered(5), zst, stored))
	aged, err := Aged(dir)
	must(t, err)
	for _, c := range []struct {
		job  string
		rank int
		name string
		want bool
	}{
		{"j1", 3, "5", true}, {"j1", 3, "5.zst", true}, {"j1", 3, "7", true}, {"j1", 3, "8", false}, {"j1", 4, "5", false}, {"j2", 3, "5", false},
	} {
		if got := aged(record.RankID{Job: c.job, Rank: c.rank}, c.name); got != c.want {
			t.Errorf("aged(%s, %d, %s)=%v", c.job, c.rank, c.name, got)
		}
	}
}

func TestOpen_PlantedLinks(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("torn"), 0o644))
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	must(t, os.Symlink(victim, Path(dir)))
	if _, err := Open(dir); err == nil {
		t.Error("a link was followed")
	}

	dir = t.TempDir()
	must(t, os.Symlink(filepath.Dir(victim), filepath.Join(dir, folder)))
	if _, err := Open(dir); err == nil {
		t.Error("a linked folder was followed")
	}

	dir = t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	must(t, syscall.Mkfifo(Path(dir), 0o644))
	if _, err := Open(dir); err == nil {
		t.Error("a FIFO was opened")
	}

	if data, _ := os.ReadFile(victim); string(data) != "torn" {
		t.Error("the linked file was changed")
	}
}

// FuzzRead is R21 for the ledger: every line is an entry or is counted.
func FuzzRead(f *testing.F) {
	r := numbered(1)
	f.Add(appendLine(nil, entry{Ledger: r}))
	f.Add(appendLine(appendLine(appendLine(nil, entry{r, 1, 2}), entry{r, 1, 2}), entry{r, 2, 2}))
	f.Add(appendLine(appendLine(nil, entry{r, 2, 2}), entry{r, 1, 3}))
	f.Add([]byte("{}\n\x00\n{\"records\":-1}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		good := 0
		bad, err := each(strings.NewReader(string(data)), func(row.Ledger) error { good++; return nil })
		if err != nil || good+bad != strings.Count(string(data), "\n") {
			t.Fatalf("%d good, %d bad, %v", good, bad, err)
		}
	})
}
