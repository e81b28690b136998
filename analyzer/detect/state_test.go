package detect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// derived names the fields that New and the next step make again, per type.
var derived = map[string][]string{
	"Engine": {"cfg", "layout", "n", "tracks", "whole", "alone", "ref", "sharing", "tokens", "inner", "saver", "links", "wires", "level", "storage", "recent",
		"inGroup", "lonely", "aloneV", "v", "logs", "work", "sum", "buf", "over",
		"graph", "did", "ends", "plain", "waits", "charged", "mended", "struck"},
	"track":     {"n", "roles", "role", "few", "node", "stage", "leads", "orphan", "selfOnly", "habits", "pure", "cfg", "least", "tests", "buf", "buf2", "hl"},
	"sharing":   {"stage", "role", "roles", "usable", "dev", "w", "whole", "ref", "stages", "buf"},
	"covariate": {"role", "slope", "dev", "ref", "ln"},
	"inner":     {"groups", "low", "stamp", "cut", "waited", "layout", "buf"},
	"savers":    {"n", "lns", "rel", "buf", "rest"},
	"linkWatch": {"cfg", "groups", "metric", "byDim", "seenIn", "buf"},
	"levels":    {"stages", "n", "common", "repl", "vals", "buf"},
	"storage":   {},
	"recent":    {"n", "buf"},
}

// TestState_NoFieldForgotten holds that each field is saved or known as derived.
func TestState_NoFieldForgotten(t *testing.T) {
	e := New(Default(), newJob(1).frame().Layouts[0])
	for _, v := range []interface{ state() fields }{e, e.tracks[0], e.sharing[0], e.tokens, e.inner, e.saver, e.links, e.level, e.storage, e.recent} {
		val := reflect.ValueOf(v).Elem()
		saved := map[uintptr]bool{}
		for _, p := range v.state() {
			if g, ok := p.(grows); ok {
				p = g.list
			}
			if c, ok := p.(*caseList); ok {
				p = c.m
			}
			saved[reflect.ValueOf(p).Pointer()] = true
		}
		for i := range val.NumField() {
			f := val.Field(i)
			name := val.Type().Field(i).Name
			at := f.Addr().Pointer() // an array's address is its first element's
			if saved[at] == slices.Contains(derived[val.Type().Name()], name) {
				t.Errorf("%s.%s: saved %v, derived %v: want exactly one", val.Type().Name(), name, saved[at], !saved[at])
			}
		}
	}
}

// columns copies all columns of a frame.
func columns(f *frame.Frame) []*frame.Column {
	var out []*frame.Column
	_ = f.Each(func(c *frame.Column) error {
		k := *c
		for m, v := range c.V {
			k.V[m] = slices.Clone(v)
		}
		out = append(out, &k)
		return nil
	})
	return out
}

// TestState_GoesOnAsIfNeverStopped saves and restores in the middle of a
// developing fault, again and again, and compares the verdicts after every step.
func TestState_GoesOnAsIfNeverStopped(t *testing.T) {
	for name, shape := range map[string]func(*job) truth{
		"compute":  func(j *job) truth { return compute1(1.15)(j) },
		"loader":   func(j *job) truth { j.shape(2, 16, 2, 8); return j.onNode(0, 60, effect{load: 0.15}) },
		"saves":    func(j *job) truth { j.shape(1, 32, 1, 8); j.saveEvery = 12; return j.onNode(1, 40, effect{save: 2.5}) },
		"sequence": func(j *job) truth { j.shape(4, 8, 1, 4); j.seq = 0.12; return truth{} },
		"restart": func(j *job) truth {
			j.shape(2, 16, 2, 8)
			j.restart, j.restartWorld, j.restartLeave = 80, 56, 3
			return j.onNode(5, 50, effect{forward: 1.2, backward: 1.2})
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(42)
			j.steps = 130
			shape(j)
			cols := columns(j.frame())
			whole, broken := New(Default(), cols[0].Layout), New(Default(), cols[0].Layout)
			for i, c := range cols {
				whole.Observe(c)
				broken.Observe(c)
				if i%13 == 5 {
					b, err := broken.State()
					if err != nil {
						t.Fatal(err)
					}
					if broken, err = Restore(b); err != nil {
						t.Fatal(err)
					}
				}
				if i%10 == 0 || i == len(cols)-1 {
					if w, b := text(t, whole.Verdict()), text(t, broken.Verdict()); !bytes.Equal(w, b) {
						t.Fatalf("step %d: verdicts differ\nunbroken %s\nrestored %s", c.Step, w, b)
					}
				}
			}
		})
	}
}

func text(t *testing.T, v *verdict.Verdict) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRestore_RefusesWhatIsNoState(t *testing.T) {
	good, err := New(Default(), newJob(1).frame().Layouts[0]).State()
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]string{
		"empty":           "",
		"not json":        "{",
		"no layout":       `{"version":1}`,
		"other version":   strings.Replace(string(good), fmt.Sprintf(`"version":%d`, stateVersion), `"version":1`, 1),
		"missing part":    strings.Replace(string(good), `"recent":`, `"other":`, 1),
		"short list":      strings.Replace(string(good), `"phase":"AAAA`, `"phase":"`, 1),
		"wrong role":      strings.Replace(string(good), `"Role":[0`, `"Role":[99`, 1),
		"list of letters": strings.Replace(string(good), `"climb":"`, `"climb":"??`, 1),
	} {
		if _, err := Restore([]byte(b)); !errors.Is(err, ErrState) {
			t.Errorf("%s: Restore()=%v, want ErrState", name, err)
		}
	}
}

func FuzzRestore(f *testing.F) {
	good, err := New(Default(), newJob(3).frame().Layouts[0]).State()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"layout":{"Ranks":[0]}}`))
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := Restore(b); err == nil {
			e.Verdict()
		}
	})
}
