package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// tree makes files (and directories, with a slash at the end) under a new root.
func tree(t *testing.T, paths ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range paths {
		full := filepath.Join(root, p)
		if strings.HasSuffix(p, "/") {
			must(t, os.MkdirAll(full, 0o755))
			continue
		}

		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(t, os.WriteFile(full, []byte("x\n"), 0o644))
	}

	return root
}

func TestWalk(t *testing.T) {
	for _, c := range []struct {
		name  string
		paths []string
		at    string
		want  string
	}{
		{"profiling", []string{"b/0/1", "a/10/1", "a/2/1", "a/2/parallel_group.json"}, "", "[a/2 a/10 b/0]"},
		{"job", []string{"a/10/1", "a/2/1.zst"}, "a", "[a/2 a/10]"},
		{"rank", []string{"a/10/1"}, "a/10", "[a/10]"},
		{"job_with_a_number_for_a_name", []string{"7/0/1", "8/0/1"}, "", "[7/0 8/0]"},
		{"that_job", []string{"7/0/1"}, "7", "[7/0]"},
		{"no_segments_yet", []string{"a/0/"}, "", "[a/0]"},
		{"empty", nil, "", "[]"},
		{"dot_names_and_no_ranks", []string{".laggard/0/1", "a/x/1", "a/01/1", "a/-1/1", "a/.0/1", "a/99999999999/1", "a/0/1"}, "", "[a/0]"},
		{"stray_number_in_the_profiling_directory", []string{"123", "a/0/1"}, "", "[a/0]"},
		{"stray_number_in_a_job", []string{"a/123", "a/0/1"}, "a", "[a/0]"},
		{"default_task_ids", []string{"default_task_id_1/0/1", "default_task_id_2/1/1"}, "", "[default_task_id_1/0 default_task_id_2/1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := tree(t, c.paths...)
			ranks, err := Walk(filepath.Join(root, c.at))
			must(t, err)
			got := []string{}
			for _, r := range ranks {
				got = append(got, fmt.Sprintf("%s/%d", r.Job, r.Rank))
				if !strings.HasSuffix(r.Path, fmt.Sprintf("/%s/%d", r.Job, r.Rank)) {
					t.Errorf("path %s of %s/%d", r.Path, r.Job, r.Rank)
				}
			}

			if fmt.Sprint(got) != c.want {
				t.Errorf("Walk=%v, want %s", got, c.want)
			}
		})
	}
}

func TestWalk_Errors(t *testing.T) {
	root := tree(t, "a/0/1", "segments/1")
	for path, want := range map[string]string{
		filepath.Join(root, "nowhere"):  "check the path",
		filepath.Join(root, "a/0/1"):    "name the directory",
		filepath.Join(root, "segments"): "no rank number",
	} {
		if _, err := Walk(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("Walk(%s): %v", path, err)
		}
	}

	denied := dirError("/p", &fs.PathError{Op: "open", Path: "/p/q", Err: syscall.EACCES})
	if !strings.Contains(denied.Error(), "/p/q: permission denied (run laggard as") {
		t.Errorf("text: %v", denied)
	}
}

// TestWalk_UnreadableDirectory needs a user that permissions hold for: as root it
// becomes nobody for the time of the call.
func TestWalk_UnreadableDirectory(t *testing.T) {
	root := tree(t, "a/0/1", "a/1/1", "b/0/1")
	for dir := root; dir != "/" && os.Geteuid() == 0 && strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}

	must(t, os.Chmod(filepath.Join(root, "a/1"), 0))
	must(t, os.Chmod(filepath.Join(root, "b"), 0))
	defer os.Chmod(filepath.Join(root, "b"), 0o755)
	ranks, err := asNobody(t, func() ([]RankDir, error) { return Walk(root) })
	if len(ranks) != 2 || ranks[0].Rank != 0 {
		t.Errorf("ranks: %+v", ranks)
	}

	for _, path := range []string{filepath.Join(root, "a/1"), filepath.Join(root, "b")} {
		if err == nil || !strings.Contains(err.Error(), "read directory "+path+": permission denied (run laggard as the directory's owner") {
			t.Errorf("%s is not told: %v", path, err)
		}
	}

	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error: %v", err)
	}
}

func TestWalk_FollowsNoLinkBelowTheRoot(t *testing.T) {
	root := tree(t, "a/0/1", "outside/0/1")
	must(t, os.Symlink(filepath.Join(root, "outside"), filepath.Join(root, "a/link")))
	must(t, os.Symlink(filepath.Join(root, "outside/0"), filepath.Join(root, "a/1")))
	must(t, os.Symlink("a", filepath.Join(root, "current")))
	ranks, err := Walk(filepath.Join(root, "current")) // the user's own link
	must(t, err)
	if len(ranks) != 1 || ranks[0].Job != "a" || ranks[0].Path != filepath.Join(root, "a/0") {
		t.Errorf("ranks: %+v", ranks)
	}

	if _, err := List(filepath.Join(root, "a/1")); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("List of a linked rank directory: %v", err)
	}

	if _, err := OpenReader(filepath.Join(root, "a/link/0/1")); err != nil {
		t.Logf("a link four parts up is refused as well: %v", err)
	}

	if _, err := OpenReader(filepath.Join(root, "a/1/1")); err == nil {
		t.Error("a segment in a linked rank directory was opened")
	}

	if _, err := Open(filepath.Join(root, "a/1"), testMeta(1), Options{}); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("Open in a linked rank directory: %v", err)
	}
}

// TestHostileNames is R24: it plants what must not be opened or written through: the test
// hangs where a FIFO is.
func TestHostileNames(t *testing.T) {
	dir := rankDir(t)
	must(t, os.MkdirAll(dir, 0o755))
	victim := filepath.Join(t.TempDir(), "victim")
	w := open(t, dir, Options{Now: at(50)})
	must(t, w.AppendRecord(testRecord(1, 0)))
	must(t, w.Close())
	data, err := os.ReadFile(filepath.Join(dir, "50"))
	must(t, err)
	victimData := append(data, "torn"...)
	must(t, os.WriteFile(victim, victimData, 0o644))
	must(t, unix.Mkfifo(filepath.Join(dir, "100"), 0o666))
	must(t, os.Symlink(victim, filepath.Join(dir, "101")))
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, "102")))
	must(t, os.Mkdir(filepath.Join(dir, "103"), 0o755))
	must(t, os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "105")))
	must(t, os.Link(victim, filepath.Join(dir, "104"))) // a hard link to a file that looks like ours
	for _, name := range []string{"100", "101", "102", "103", "105"} {
		if r, err := OpenReader(filepath.Join(dir, name)); err == nil {
			r.Close()
			t.Errorf("%s was opened", name)
		}
	}

	all, err := List(dir)
	must(t, err)
	if len(all) != 2 || all[1].Name != "104" || all[1].Links != 2 {
		t.Errorf("segments: %+v", all)
	}

	w = open(t, dir, Options{Now: at(99)})
	must(t, w.AppendRecord(testRecord(1, 1)))
	must(t, w.Close())
	if w.Name() != "106" {
		t.Errorf("the new segment is %s, want 106", w.Name())
	}

	if got, err := os.ReadFile(victim); err != nil || string(got) != string(victimData) {
		t.Errorf("the linked file was changed: %v", err)
	}
}

// TestWriters_OfOneRankAtOnce: unique names, every record once, no line mixed.
func TestWriters_OfOneRankAtOnce(t *testing.T) {
	dir := rankDir(t)
	const writers, n = 4, 300
	var wg sync.WaitGroup
	for i := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			w, err := Open(dir, testMeta(record.ID(i+1)), Options{Limit: minLimit, Now: at(100), Buffer: 500})
			if err != nil {
				t.Error(err)
				return
			}

			for seq := range uint64(n) {
				if err := w.AppendRecord(testRecord(uint32(i+1), uint64(i)*1000+seq)); err != nil {
					t.Error(err)
				}
			}

			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}()
	}

	wg.Wait()
	got := seqs(t, dir, minLimit)
	for i := range uint64(writers) {
		for seq := range uint64(n) {
			if got[i*1000+seq] != 1 {
				t.Fatalf("record %d of writer %d stands %d times", seq, i, got[i*1000+seq])
			}
		}
	}
}

func TestIdentity(t *testing.T) {
	const line = `{"meta":{"format":"laggard/1","segment":"8d1f000000000001","job":"j1","rank":0,"incarnation":"0000000000000001"}}`
	if got := Identity("j1", 0, "100", []byte(line)); got != 0x8d1f000000000001 {
		t.Errorf("Identity=%v", got)
	}

	foreign := []byte(`{"Kind":1}`)
	want := record.HashID("j1", "0", "100", `{"Kind":1}`)
	for _, name := range []string{"100", "100.zst", "/x/j1/0/100"} {
		if got := Identity("j1", 0, name, append(foreign, '\n')); got != want {
			t.Errorf("Identity(%s)=%v, want %v", name, got, want)
		}
	}

	if Identity("j1", 0, "100", []byte(`{"meta":{"segment":"zz"}}`)) == 0 {
		t.Error("no identity for a bad id")
	}
}

func TestRemove_OnlyTheSameFile(t *testing.T) {
	path := put(t, "5", []byte("a\n"))
	dir := filepath.Dir(path)
	all, err := List(dir)
	must(t, err)
	must(t, os.Rename(path, path+".old"))
	must(t, os.WriteFile(path, []byte("b\n"), 0o644))
	if err := Remove(dir, all[0]); err == nil {
		t.Error("another file was removed")
	}

	all, err = List(dir)
	must(t, err)
	must(t, Remove(dir, all[0]))
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("it is still there")
	}

	if err := Remove(dir, all[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removing it twice: %v", err)
	}
}
