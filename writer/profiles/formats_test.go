package profiles

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sampleOf is a folder, and the file in it to damage.
type sampleOf struct{ name, format, folder, lead string }

// samples are a small folder of each form that a format has. The file to damage is that of the
// last rank where each has its own.
var samples = []sampleOf{
	{"kineto", "kineto", "testdata/dlrm-8rank", "worker7_step_12.1694128201553.pt.trace.json.gz"},
	{"ascend text", "ascend", "testdata/ascend/level0", "rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json"},
	{"ascend db", "ascend", "testdata/ascend/db/level0", "rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_1.db"},
	{"mindstudio", "mindstudio", "testdata/ascend/cluster_analysis_output", "cluster_step_trace_time.csv"},
	{"nsight", "nsight", "testdata/nsys", "mfu_2gpu_before.sqlite"},
	{"flight", "flight", "testdata/flight", "fr_trace_rank_3.json"},
	{"inspector", "inspector", "testdata/inspector", "node-1-pid1639454.log"},
}

// The operator's page has a row for each format, and the tests above a sample.
func TestPageOfFormats(t *testing.T) {
	page, err := os.ReadFile("../../deploy/docs/profiles.md")
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range formats() {
		if !strings.Contains(string(page), "\n| `"+f.Name+"` | ") {
			t.Errorf("profiles.md has no row for %s", f.Name)
		}

		if !slices.ContainsFunc(samples, func(s sampleOf) bool { return s.format == f.Name }) {
			t.Errorf("there is no sample of %s", f.Name)
		}
	}
}

// copied copies a folder, so that it can be damaged.
func copied(t *testing.T, folder string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}

	return dir
}

// saidOf reads a folder and returns what is said of it: the error, or what could not be read and the
// notes.
func saidOf(t *testing.T, dir string, o Options) (said string, ranks int) {
	t.Helper()
	tree, err := Open(t.Context(), dir, o)
	if err != nil {
		return err.Error(), 0
	}
	defer tree.Close()
	rowsOf(t, tree)
	var words []string
	for _, p := range append(tree.Unread, tree.Notes...) {
		words = append(words, p.String())
	}

	return strings.Join(words, "\n"), tree.Ranks
}

// Of a damaged, cut, empty or linked file of each format, file and cause are told, and what other files
// hold is read.
func TestDamagedFormats(t *testing.T) {
	for _, s := range samples {
		for _, d := range []struct {
			name   string
			damage func(t *testing.T, path string, text []byte) error
			want   []string // one of them
		}{
			{"cut", func(_ *testing.T, path string, text []byte) error {
				return os.WriteFile(path, text[:len(text)*3/5], 0o600)
			},
				[]string{"cut", "unexpected EOF", "damaged", "malformed", "disk I/O", "short read"}},
			{"cut short", func(_ *testing.T, path string, text []byte) error { return os.WriteFile(path, text[:7], 0o600) },
				[]string{"damaged, or something else", "none of its", "cut"}},
			{"garbage", func(_ *testing.T, path string, text []byte) error {
				for i := range text {
					text[i] = byte(i*i>>3 ^ i)
				}

				return os.WriteFile(path, text, 0o600)
			}, []string{"damaged, or something else", "none of its"}},
			{"empty", func(_ *testing.T, path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
				[]string{"is empty"}},
			{"a link", func(t *testing.T, path string, text []byte) error {
				to := filepath.Join(t.TempDir(), filepath.Base(path))
				return errors.Join(os.WriteFile(to, text, 0o600), os.Remove(path), os.Symlink(to, path))
			}, []string{"symbolic link, which is not followed"}},
			{"a folder in its place", func(_ *testing.T, path string, _ []byte) error {
				return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
			}, nil},
		} {
			t.Run(s.name+"/"+d.name, func(t *testing.T) {
				dir := copied(t, s.folder)
				if s.format == "nsight" { // two captures of one name but for a number
					for from, to := range map[string]string{"h100_2gpu_1s.sqlite": "node0.sqlite", "mfu_2gpu_before.sqlite": "node1.sqlite"} {
						if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
							t.Fatal(err)
						}
					}

					s.lead = "node1.sqlite"
				}

				path := filepath.Join(dir, s.lead)
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}

				if err := d.damage(t, path, text); err != nil {
					t.Fatal(err)
				}

				said, ranks := saidOf(t, dir, Options{})
				if d.want != nil && (!strings.Contains(said, filepath.Base(s.lead)) || !slices.ContainsFunc(d.want, func(w string) bool { return strings.Contains(said, w) })) {
					t.Errorf("it names not the file, or none of %q: %s", d.want, said)
				}

				if s.format != "mindstudio" && ranks == 0 {
					t.Errorf("the other ranks are not read: %s", said)
				}
			})
		}
	}
}

// A file that only ends like the profiles beside it is passed over, and once told: it may be a damaged
// one. What is called quite differently, and the other files of a profile of several, are not its matter.
func TestFilesOfNoFormat(t *testing.T) {
	for _, s := range samples {
		dir := copied(t, s.folder)
		ending, want := map[string]string{"kineto": ".json", "nsight": ".sqlite", "flight": ".json", "inspector": ".jsonl"}[s.format]
		if !want {
			ending = filepath.Ext(s.lead) // of a profile of several files
		}

		for _, name := range []string{"saved-by-hand" + ending, "settings" + ending, "README.md"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		tree, err := Open(t.Context(), dir, Options{})
		if err != nil {
			t.Fatal(err)
		}

		said := strings.Join(Sentences(append(tree.Unread, tree.Notes...)), "\n")
		if told := strings.Contains(said, "saved-by-hand"+ending+" and 1 more: passed over"); told != want {
			t.Errorf("%s: told %v, want %v: %s", s.name, told, want, said)
		}

		if strings.Contains(said, "README.md") {
			t.Errorf("%s: %s", s.name, said)
		}

		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Folders of two formats are refused with a file of each and the words to choose by, and each can be
// chosen.
func TestMixedFormats(t *testing.T) {
	for i, a := range samples {
		for _, b := range samples[i+1:] {
			if a.format == b.format {
				continue
			}

			dir := t.TempDir()
			for sub, s := range map[string]string{"first": a.folder, "second": b.folder} {
				if err := os.CopyFS(filepath.Join(dir, sub), os.DirFS(s)); err != nil {
					t.Fatal(err)
				}
			}

			said, _ := saidOf(t, dir, Options{})
			for _, want := range []string{"profiles of two formats", "--from " + a.format, "--from " + b.format, filepath.Join(dir, "first"), filepath.Join(dir, "second")} {
				if !strings.Contains(said, want) {
					t.Errorf("%s and %s: it does not say %q: %s", a.name, b.name, want, said)
				}
			}
		}
	}
}

// A database without a table that is needed says which, and gives what the others hold.
func TestMissingTables(t *testing.T) {
	for _, c := range []struct{ sample, table string }{
		{"ascend db", "STEP_TIME"}, {"ascend db", "STRING_IDS"}, {"ascend db", "TASK"}, {"ascend db", "COMMUNICATION_OP"}, {"ascend db", "CANN_API"}, {"ascend db", "ENUM_HCCL_DATA_TYPE"},
		{"nsight", "StringIds"}, {"nsight", "CUPTI_ACTIVITY_KIND_KERNEL"},
	} {
		t.Run(c.table, func(t *testing.T) {
			i := slices.IndexFunc(samples, func(s sampleOf) bool { return s.name == c.sample })
			dir := copied(t, samples[i].folder)
			path := filepath.Join(dir, samples[i].lead)
			spoil(t, path, `DROP TABLE `+c.table)
			if c.table == "StringIds" { // nobody knows it for an export then
				if said, _ := saidOf(t, path, Options{}); !strings.Contains(said, "none of its 1 files") || !strings.Contains(said, filepath.Base(path)) {
					t.Error(said)
				}

				return
			}

			said, ranks := saidOf(t, dir, Options{})
			lost := "read table " + c.table + ": no such table"
			if !strings.Contains(said, filepath.Base(path)) || !strings.Contains(said, lost) || ranks == 0 {
				t.Errorf("%d ranks; it does not say %q: %s", ranks, lost, said)
			}
		})
	}
}

// FuzzFormats gives each format whatever bytes under a name that it knows: it ends, and nothing panics.
func FuzzFormats(f *testing.F) {
	names := []string{"rank0.json", "trace_view.json", "ascend_pytorch_profiler_0.db", "cluster_step_trace_time.csv", "a.sqlite", "nccl_trace_rank_0", "h-pid1.log"}
	for _, s := range samples {
		text, err := os.ReadFile(filepath.Join(s.folder, s.lead))
		if err != nil {
			f.Fatal(err)
		}

		f.Add(text[:min(len(text), 8<<10)], uint8(slices.IndexFunc(names, func(n string) bool { return filepath.Ext(n) == filepath.Ext(s.lead) })))
	}

	f.Add([]byte("\x80\x02}(pg_config version"), uint8(5))
	f.Fuzz(func(t *testing.T, text []byte, which uint8) {
		path := filepath.Join(t.TempDir(), names[int(which)%len(names)])
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}

		if tree, err := Open(t.Context(), path, Options{}); err == nil {
			tree.Close()
		} else if !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("the file is not named: %v", err)
		}
	})
}
