package detect

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/state"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// stream is a state of a small job.
func stream(tb testing.TB) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := New(Default(), newJob(3).frame().Layouts[0]).Save(&b); err != nil {
		tb.Fatal(err)
	}

	return b.Bytes()
}

func TestRestore_RefusesWhatIsNoState(t *testing.T) {
	good := stream(t)
	older := bytes.Clone(good)
	if at := bytes.IndexByte(older, 2*stateVersion); at < 0 || at > 8 { // gob doubles an int
		t.Fatalf("no version in % x", older[:8])
	} else {
		older[at] -= 2
	}

	for name, b := range map[string][]byte{
		"empty":         nil,
		"no gob":        []byte("{"),
		"older version": older,
		"cut":           good[:len(good)/2],
		"cut at end":    good[:len(good)-1],
		"other field":   bytes.Replace(good, []byte("track-fp.mu"), []byte("track-fp.nu"), 1),
		"huge list":     append(bytes.Clone(good[:4]), 0xf8, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
	} {
		if _, err := Restore(bytes.NewReader(b), Default()); !errors.Is(err, ErrState) {
			t.Errorf("%s: Restore()=%v, want ErrState", name, err)
		}
	}
}

// FuzzRestore wants no panic, and no more memory than a multiple of the bytes.
func FuzzRestore(f *testing.F) {
	f.Add([]byte{})
	f.Add(stream(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		e, err := Restore(bytes.NewReader(b), Default())
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > bounded(len(b)) {
			t.Errorf("%d bytes took %d of memory", len(b), used)
		}

		if err == nil {
			e.Verdict()
		} else if !errors.Is(err, ErrState) {
			t.Error(err)
		}
	})
}

// TestRestore_ForgedNumbers gives each integer of a state in turn a value that no
// engine has: the state is refused, or the engine goes on without a panic.
func TestRestore_ForgedNumbers(t *testing.T) {
	e, good, cols := livelyState(t)
	for name := range e.fields() {
		for _, forged := range []int64{-1, 1, 1 << 33, math.MaxInt64} {
			e, err := Restore(bytes.NewReader(good), Default())
			if err != nil {
				t.Fatal(err)
			}

			if !forge(reflect.ValueOf(state.Pointer(e.fields()[name])).Elem(), forged) {
				break
			}

			var b bytes.Buffer
			if err := e.Save(&b); err != nil {
				t.Fatal(err)
			}

			if msg := survives(&b, cols); msg != "" {
				t.Errorf("%s = %d: %s", name, forged, msg)
			}
		}
	}
}

// livelyState is an engine in the middle of a job that restarts, saves and has a slow
// node, its state, and the steps to come.
func livelyState(t *testing.T) (*Engine, []byte, []*frame.Column) {
	t.Helper()
	j := newJob(42)
	j.steps = 150
	j.shape(2, 8, 1, 4)
	j.saveEvery = 12
	j.restart, j.restartWorld, j.restartLeave = 60, 12, 3
	j.onNode(1, 80, effect{forward: 1.2, backward: 1.2})
	cols := columns(j.frame())
	e := New(Default(), cols[0].Layout)
	for _, c := range cols[:len(cols)-20] {
		e.Observe(c)
	}

	var b bytes.Buffer
	if err := e.Save(&b); err != nil {
		t.Fatal(err)
	}

	return e, b.Bytes(), cols[len(cols)-20:]
}

// TestRestore_FlippedBytes changes a few bytes at random, as damage does that no
// checksum was there to see, and measures the memory that is taken.
func TestRestore_FlippedBytes(t *testing.T) {
	_, good, cols := livelyState(t)
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range 1000 {
		b := bytes.Clone(good)
		for range 1 + rng.IntN(4) {
			at := rng.IntN(len(b))
			if rng.IntN(2) == 0 {
				at = rng.IntN(4096) // the types and the layout
			}

			b[at] = byte(rng.Uint32())
		}

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		msg := survives(bytes.NewBuffer(b), cols)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > bounded(len(b)) {
			msg = fmt.Sprintf("%d bytes took %d of memory", len(b), used)
		}

		if msg != "" {
			t.Fatalf("change %d of seed %d: %s", i, seed, msg)
		}
	}
}

// bounded is the memory that reading so many bytes may take: gob begins a list with
// 10 MB at most, and an element of one byte may take as much as the largest struct.
func bounded(n int) uint64 { return 64<<20 + 1024*uint64(n) }

// survives restores an engine and lets it go on. It returns what went wrong.
func survives(b *bytes.Buffer, cols []*frame.Column) (msg string) {
	defer func() {
		if p := recover(); p != nil {
			msg = fmt.Sprintf("panic: %v\n%.1500s", p, debug.Stack())
		}
	}()
	e, err := Restore(b, Default())
	if err != nil {
		if !errors.Is(err, ErrState) {
			return err.Error()
		}

		return ""
	}

	for _, c := range cols {
		same := *c
		same.Layout = e.layout
		e.Observe(&same)
	}

	e.Verdict()
	return ""
}

// forge sets all integers of a value. It reports whether there are any.
func forge(v reflect.Value, n int64) bool {
	found := false
	switch v.Kind() {
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(limit(n, v.Type().Bits()))
		return true
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(uint64(n) & (1<<v.Type().Bits() - 1))
		return true
	case reflect.Struct:
		for i := range v.NumField() {
			found = forge(v.Field(i), n) || found
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			found = forge(v.Index(i), n) || found
		}
	case reflect.Pointer:
		return !v.IsNil() && forge(v.Elem(), n)
	case reflect.Map:
		for _, k := range v.MapKeys() {
			key, x := reflect.New(k.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.Set(k)
			x.Set(v.MapIndex(k))
			if v.SetMapIndex(k, reflect.Value{}); forge(key, n) {
				found = true
			}

			found = forge(x, n) || found
			v.SetMapIndex(key, x)
		}
	}

	return found
}

// limit is n as far as so many bits hold it.
func limit(n int64, bits int) int64 {
	top := int64(math.MaxInt64) >> (64 - bits)
	return min(max(n, -top-1), top)
}
