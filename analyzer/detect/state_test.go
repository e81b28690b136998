package detect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/state"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// scratch names the fields, by type, that hold nothing from one step to the next: a
// restored engine may differ in them alone.
var scratch = map[string][]string{
	"detect.Engine":      {"v", "logs", "work", "sum", "buf", "over", "aloneV", "inGroup", "leads"},
	"cost.Book":          {"did", "ends", "plain", "waits", "charged", "mended", "struck", "usual", "usualAt", "buf"},
	"sequential.Test":    {"confirmed", "buf", "buf2", "hl"},
	"residual.Reference": {"buf", "idx", "Middle"},
	"residual.Sharing":   {"dev", "w", "whole", "untold", "levels", "buf"},
	"residual.Covariate": {"slope", "dev", "ln"},
	"residual.Waits":     {"low", "stamp", "Waited", "Worked", "buf"},
	"residual.Exposure":  {"right", "vals", "buf"},
	"saves.Watch":        {"lns", "rel", "well", "buf", "rest", "among"},
	"link.Watch":         {"buf"},
	"level.Loading":      {"buf"},
	"level.Job":          {"common", "repl", "vals", "buf"},
	"history.Window":     {"buf"},
	"replay.Graph":       {"usual", "counts", "clock"},
}

// comparison walks two engines field by field, private ones and derived ones too, and names
// the fields that differ, each once. (go-cmp does the same in twenty times the time.)
type comparison struct {
	path, names []string
	met         map[pair]bool
}

// pair are pointers of the two engines that are compared once: what they point to may point back.
type pair struct {
	a, b uintptr
	typ  reflect.Type
}

func (d *comparison) differ() {
	if name := strings.Join(d.path, "."); !slices.Contains(d.names, name) {
		d.names = append(d.names, name)
	}
}

func (d *comparison) walk(a, b reflect.Value) {
	switch a.Kind() {
	case reflect.Struct:
		typ := a.Type()
		skipped := scratch[typ.String()]
		for i := range a.NumField() {
			name := typ.Field(i).Name
			if slices.Contains(skipped, name) {
				continue
			}

			d.path = append(d.path, name)
			d.walk(a.Field(i), b.Field(i))
			d.path = d.path[:len(d.path)-1]
		}
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				d.differ()
			}

			return
		}

		if p := (pair{a.Pointer(), b.Pointer(), a.Type()}); p.a != p.b && !d.met[p] {
			d.met[p] = true
			d.walk(a.Elem(), b.Elem())
		}
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			d.differ()
			return
		}

		for i := range a.Len() {
			d.walk(a.Index(i), b.Index(i))
		}
	case reflect.Map:
		if a.Len() != b.Len() {
			d.differ()
			return
		}

		for k, v := range a.Seq2() {
			if other := b.MapIndex(k); other.IsValid() {
				d.walk(v, other)
			} else {
				d.differ()
			}
		}
	case reflect.Float32, reflect.Float64:
		if x, y := a.Float(), b.Float(); x != y && (x == x || y == y) { // NaN is as NaN
			d.differ()
		}
	default:
		if !a.Equal(b) {
			d.differ()
		}
	}
}

// columns copies all columns of a frame.
func columns(f *frame.Frame) []*frame.Column {
	var out []*frame.Column
	for _, c := range f.Columns {
		k := *c
		for m, v := range c.V {
			k.V[m] = slices.Clone(v)
		}

		out = append(out, &k)
	}

	return out
}

// sizedFrame is a job of the evaluation, of a few ranks.
func sizedFrame(t *testing.T, name string, seed uint64) *frame.Frame {
	t.Helper()
	cfg, err := simulate.Sized(name, seed, 24)
	if err != nil {
		t.Fatal(err)
	}

	rows, _, err := simulate.Rows(cfg)
	if err != nil {
		t.Fatal(err)
	}

	return frameOf(t, &rows, simulate.Topology(cfg))
}

// frameOf is the columns of rows.
func frameOf(t *testing.T, rows *row.Rows, groups *topology.File) *frame.Frame {
	t.Helper()
	b := &feed.History{}
	b.Add(rows)
	f, err := b.Frame(groups)
	if err != nil {
		t.Fatal(err)
	}

	return f
}

// restored saves an engine and restores it. Nothing but scratch may be lost.
func restored(t *testing.T, e *Engine) *Engine {
	t.Helper()
	var b bytes.Buffer
	if err := e.Save(&b); err != nil {
		t.Fatal(err)
	}

	r, err := Restore(&b, e.cfg)
	if err != nil {
		t.Fatal(err)
	}

	equal(t, e, r)
	return r
}

func equal(t *testing.T, want, got *Engine) {
	t.Helper()
	d := comparison{met: map[pair]bool{}}
	if d.walk(reflect.ValueOf(want), reflect.ValueOf(got)); len(d.names) > 0 {
		t.Fatalf("a restored engine differs in %q: save these fields in state.go, or name them scratch", d.names)
	}
}

// TestState_GoesOnAsIfNeverStopped saves and restores at random steps, and compares
// later verdicts with those of an engine that was never stopped: the first after each time
// and one of four steps. LAGGARD_SEEDS=all compares that of every step.
func TestState_GoesOnAsIfNeverStopped(t *testing.T) {
	for k, name := range append(simulate.Names(), simulate.Families()...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goesOn(t, sizedFrame(t, name, uint64(k)+300), uint64(k))
		})
	}

	t.Run("other world", func(t *testing.T) {
		j := newJob(42)
		j.steps = 130
		j.shape(2, 16, 2, 8)
		j.restart, j.restartWorld, j.restartLeave = 80, 56, 3
		j.onNode(5, 50, effect{forward: 1.2, backward: 1.2})
		goesOn(t, j.frame(), 1)
	})
}

func goesOn(t *testing.T, f *frame.Frame, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	cols, rest := columns(f), f.Transfers
	whole, broken := New(Default(), cols[0].Layout), New(Default(), cols[0].Layout)
	for _, e := range []*Engine{whole, broken} {
		e.Describe(f.Job, f.Estimated > 0.5, f.HostOnly > 0.5)
	}

	stopped, every := false, int(seedsOf(4, 1))
	for i, c := range cols {
		for len(rest) > 0 && (rest[0].Attempt < c.Attempt || rest[0].Attempt == c.Attempt && rest[0].To < c.Step) {
			whole.ObserveTransfer(&rest[0])
			broken.ObserveTransfer(&rest[0])
			rest = rest[1:]
		}

		whole.Observe(c)
		same := *c
		if i > 0 && c.Layout == cols[i-1].Layout {
			same.Layout = broken.layout // after a restore it is at another place
		}

		broken.Observe(&same)
		again := rng.IntN(len(cols)) < 5 || i == len(cols)-2
		if again {
			broken, stopped = restored(t, broken), true
		}

		if !stopped || !again && i%every != 0 && i < len(cols)-2 {
			continue
		}

		if w, b := text(t, whole.Verdict()), text(t, broken.Verdict()); !bytes.Equal(w, b) {
			t.Fatalf("step %d: verdicts differ\nunbroken %s\nrestored %s", c.Step, w, b)
		}
	}

	equal(t, whole, broken)
}

// TestRestore_TakesThresholds wants a restored engine to be one that was configured.
func TestRestore_TakesThresholds(t *testing.T) {
	e, state, cols := livelyState(t)
	cfg := Default()
	cfg.Effect, cfg.MinEffect, cfg.LinkRise = 0.2, 0.1, 0.5
	r, err := Restore(bytes.NewReader(state), cfg)
	if err != nil {
		t.Fatal(err)
	}

	e.Configure(cfg)
	equal(t, e, r)
	for _, c := range cols {
		e.Observe(c)
		same := *c
		same.Layout = r.layout
		r.Observe(&same)
	}

	equal(t, e, r)
}

func text(t *testing.T, v *verdict.Verdict) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}

	return b
}

// shapeOfState is the shape of what stateVersion says: the names and types of all
// fields.
const shapeOfState = 0x618bad8b

// TestState_VersionFollowsShape fails when what is saved changes: an older state
// would be read as if it were of this build.
func TestState_VersionFollowsShape(t *testing.T) {
	h := fnv.New32a()
	all := New(Default(), newJob(1).frame().Layouts[0]).fields()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintln(h, name)
		shape(t, h, reflect.TypeOf(state.Pointer(all[name])).Elem(), name)
	}

	shape(t, h, reflect.TypeFor[frame.Layout](), "layout")
	if got := h.Sum32(); got != shapeOfState {
		t.Fatalf("the shape of the state is %#x, that of version %d was %#x: raise stateVersion in restore.go, and set shapeOfState", got, stateVersion, uint32(shapeOfState))
	}
}

// shape writes the names and kinds of all exported fields of a type: gob saves them
// alone, so a private one is an error.
func shape(t *testing.T, w io.Writer, typ reflect.Type, path string) {
	fmt.Fprintln(w, typ.Kind())
	switch typ.Kind() {
	case reflect.Struct:
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.IsExported() {
				t.Errorf("%s.%s is private: gob doesn't save it", path, f.Name)
			}

			fmt.Fprintln(w, f.Name)
			shape(t, w, f.Type, path+"."+f.Name)
		}
	case reflect.Map:
		shape(t, w, typ.Key(), path)
		shape(t, w, typ.Elem(), path)
	case reflect.Array, reflect.Slice, reflect.Pointer:
		if typ.Kind() == reflect.Array {
			fmt.Fprintln(w, typ.Len())
		}

		shape(t, w, typ.Elem(), path)
	}
}

// TestState_MapsAreThere holds that New makes every map of the state: gob would make
// one as large as a hostile stream says.
func TestState_MapsAreThere(t *testing.T) {
	for name, p := range New(Default(), newJob(1).frame().Layouts[0]).fields() {
		mapsAreThere(t, reflect.ValueOf(state.Pointer(p)).Elem(), name)
	}
}

func mapsAreThere(t *testing.T, v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Map:
		if v.IsNil() || hasMap(v.Type().Elem()) {
			t.Errorf("%s: New makes no map there, or what is in it has maps", path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			mapsAreThere(t, v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Slice, reflect.Array, reflect.Pointer:
		if hasMap(v.Type().Elem()) {
			t.Errorf("%s: its elements have maps", path)
		}
	}
}

func hasMap(typ reflect.Type) bool {
	switch typ.Kind() {
	case reflect.Map:
		return true
	case reflect.Struct:
		for i := range typ.NumField() {
			if hasMap(typ.Field(i).Type) {
				return true
			}
		}
	case reflect.Slice, reflect.Array, reflect.Pointer:
		return hasMap(typ.Elem())
	}

	return false
}
