package watch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/laggard-dev/laggard/analyzer/detect"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/row"
)

// caches names the fields, by type, that are made again when they are asked for: a
// restored memory may differ in them alone.
var caches = map[string][]string{
	"feed.Feed":    {"layout", "owners", "passed", "offs", "offKnown", "world"},
	"feed.process": {"at", "row", "turn"},
	"watch.job":    {"reader", "verdict", "dirty", "taken", "failing", "damaged"}, // of a process
}

// sameMemory compares memories field by field, private ones too. Package detect holds
// the same of the engine.
var sameMemory = cmp.Options{
	cmp.Exporter(func(reflect.Type) bool { return true }),
	cmpopts.IgnoreTypes(&detect.Engine{}),
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().Type().String() == "[]*feed.column" }, cmpopts.EquateEmpty()),
	cmp.Comparer(func(a, b []float32) bool {
		return slices.EqualFunc(a, b, func(x, y float32) bool { return x == y || x != x && y != y })
	}),
	cmp.Comparer(slices.Equal[[]row.Step]), cmp.Comparer(func(a, b row.Step) bool { return a == b }),
	cmp.Comparer(slices.Equal[[]int64]), cmp.Comparer(slices.Equal[[]int32]), cmp.Comparer(slices.Equal[[]uint16]), cmp.Comparer(slices.Equal[[]uint32]), cmp.Comparer(slices.Equal[[]int]),
	cmp.Comparer(slices.Equal[[]string]), cmp.Comparer(slices.Equal[[]byte]),
	cmp.FilterPath(func(p cmp.Path) bool {
		f, ok := p.Last().(cmp.StructField)
		return ok && slices.Contains(caches[p.Index(-2).Type().String()], f.Name())
	}, cmp.Ignore()),
}

// TestState_HoldsTheMemory loads what was saved after some looks: nothing but caches
// may be lost.
func TestState_HoldsTheMemory(t *testing.T) {
	for k, name := range append(simulate.Names(), simulate.Families()...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := simulated(t, name, uint64(k)+400)
			w, err := New(Options{Source: s, StateDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			rng := rand.New(rand.NewPCG(uint64(k), 4))
			for look := range s.list {
				if err := w.Look(t.Context()); err != nil {
					t.Fatal(err)
				}

				if look < len(s.list)-1 && rng.IntN(12) > 0 {
					continue
				}

				want := w.jobs[s.job]
				got, err := w.load(s.job)
				if err != nil {
					t.Fatal(err)
				}

				if d := cmp.Diff(want, got, sameMemory); d != "" {
					t.Fatalf("restored memory differs (-saved +restored):\n%.4000s", d)
				}
			}
		})
	}
}

// TestState_DamagedMeansAnew wants a state that can't be used to mean: begin anew, and
// say which file it was.
func TestState_DamagedMeansAnew(t *testing.T) {
	s, rows := simulated(t, "compute-2", 9)
	want := analyzed(t, rows, s.topo)
	for name, damage := range map[string]func([]byte) []byte{
		"torn":    func(b []byte) []byte { return b[:len(b)/2] },
		"empty":   func([]byte) []byte { return nil },
		"flipped": func(b []byte) []byte { b[len(b)/3] ^= 4; return b },
		"foreign": func([]byte) []byte { return []byte("laggard-snap/1\nand then something else") },
		"older":   func(b []byte) []byte { return sealed(older(t, b[stateHead:])) },
		"forged":  func(b []byte) []byte { return sealed(b[stateHead : len(b)-len(b)/3]) },
		"longer": func(b []byte) []byte {
			return sealed(append([]byte{0xf8, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, b[stateHead:]...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			damaged := false
			var log bytes.Buffer
			got, _ := watchLogged(t, s, dir, slog.New(slog.NewTextHandler(&log, nil)), func(look int) bool {
				if look != 2 || damaged {
					return false
				}

				damaged = true
				files, err := filepath.Glob(filepath.Join(dir, "*"+stateSuffix))
				if err != nil || len(files) != 1 {
					t.Fatalf("%v, %v", files, err)
				}

				b, err := os.ReadFile(files[0])
				if err != nil {
					t.Fatal(err)
				}

				if err := os.WriteFile(files[0], damage(b), 0o600); err != nil {
					t.Fatal(err)
				}

				return true
			})
			if got != want {
				t.Fatalf("differs from analyze:\n%s", difference(want, got))
			}

			if said := log.String(); !strings.Contains(said, "read from its beginning") || !strings.Contains(said, filepath.Join(dir, "")) {
				t.Fatalf("the log names neither the file nor what happens: %s", said)
			}
		})
	}
}

// sealed makes a state file of a body.
func sealed(body []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(stateMagic), crc32.Checksum(body, castagnoli))
	return append(b, body...)
}

// older is a body of the version before.
func older(t *testing.T, body []byte) []byte {
	t.Helper()
	b := bytes.Clone(body)
	at := bytes.IndexByte(b, 2*stateVersion) // gob doubles an int
	if at < 0 || at > 8 {
		t.Fatalf("no version in % x", b[:8])
	}

	b[at] -= 2
	return b
}

// TestState_FlippedBytes changes a few bytes at random and makes the checksum right:
// the file is refused or taken, without a panic and without much memory. LAGGARD_SEEDS=all
// changes it 1,000 times.
func TestState_FlippedBytes(t *testing.T) {
	s, _ := simulated(t, "restart", 9)
	dir := t.TempDir()
	w, err := New(Options{Source: s, StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range len(s.list) / 2 {
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	good, err := os.ReadFile(w.stateFile(s.job))
	if err != nil {
		t.Fatal(err)
	}

	body := good[stateHead:]
	rng := rand.New(rand.NewPCG(1, 1))
	changes, taken := 200, 0
	if os.Getenv("LAGGARD_SEEDS") == "all" {
		changes = 1000
	}

	for i := range changes {
		b := bytes.Clone(body)
		for range 1 + rng.IntN(3) {
			b[rng.IntN(min(len(b), 1<<(8+rng.IntN(12))))] = byte(rng.Uint32())
		}

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := decode(sealed(b), detect.Default()); err == nil {
			taken++
		}

		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20+1024*uint64(len(b)) {
			t.Fatalf("change %d: %d bytes took %d of memory", i, len(b), used)
		}
	}

	if taken == 0 || taken == changes {
		t.Fatalf("%d of %d forged files were taken: want some", taken, changes)
	}
}

// shapeOfState is the shape of what stateVersion says: the names and types of all
// fields.
const shapeOfState = 0x6cda6873

// TestState_VersionFollowsShape fails when a saved type changes: an older state would
// be read as if it were of this build.
func TestState_VersionFollowsShape(t *testing.T) {
	h := fnv.New32a()
	shape(t, h, reflect.TypeFor[job](), "state")
	if got := h.Sum32(); got != shapeOfState {
		t.Fatalf("the shape of the state is %#x, that of version %d was %#x: raise stateVersion in memory.go, and set shapeOfState", got, stateVersion, uint32(shapeOfState))
	}
}

// shape writes the names and kinds of the exported fields of a type: what gob saves.
func shape(t *testing.T, w io.Writer, typ reflect.Type, path string) {
	fmt.Fprintln(w, typ.Kind())
	switch typ.Kind() {
	case reflect.Struct:
		for i := range typ.NumField() {
			if f := typ.Field(i); f.IsExported() {
				fmt.Fprintln(w, f.Name)
				shape(t, w, f.Type, path+"."+f.Name)
			}
		}
	case reflect.Map:
		t.Errorf("%s: a map that decode does not make: gob would make one as large as a hostile stream says", path)
	case reflect.Array, reflect.Slice, reflect.Pointer:
		shape(t, w, typ.Elem(), path)
	}
}
