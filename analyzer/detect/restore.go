package detect

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// stateVersion is the version of the saved state; another one is not read. It rises
// with every change of what is saved or of what it means.
const stateVersion = 9

// ErrState is returned by Restore when the bytes are no state of this version: of
// another one, cut, damaged or made up. Whoever gets it begins anew from the rows.
var ErrState = errors.New("no usable state of this version")

// fields names the parts of a value that make its state and points at them. A test
// holds that nothing else of the engine lives on from one step to the next.
type fields map[string]any

// grows marks a list whose length is part of the state. The length of every other
// list follows from the layout.
type grows struct{ list any }

// counts marks numbers that indices are made of: from 0 to mostCount, or half of what
// their type holds.
type counts struct{ number any }

// mostCount is more than any job counts, and far from overflow.
const mostCount = 1 << 48

// Save writes everything the engine knows but its thresholds: what Restore makes of
// it goes on as if it had never stopped.
//
// The format is one gob stream: the version, the layouts, then the name and the value
// of each field in the order of names.
func (e *Engine) Save(w io.Writer) error {
	enc := gob.NewEncoder(w)
	layouts := []*frame.Layout{e.layout}
	if e.base != e.layout {
		layouts = append(layouts, e.base)
	}

	if err := errors.Join(enc.Encode(stateVersion), enc.Encode(layouts)); err != nil {
		return fmt.Errorf("save engine: %w", err)
	}

	all := e.fields()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := errors.Join(enc.Encode(name), enc.Encode(pointer(all[name]))); err != nil {
			return fmt.Errorf("save engine: %s: %w", name, err)
		}
	}

	return nil
}

// Restore makes an engine of what Save wrote. It may read beyond it.
//
// What it reads may be damaged or hostile: lists have the lengths that the layout
// gives them and indices are inside their lists, or the error is ErrState. Memory is
// bounded by the bytes that are there, not by what they announce.
func Restore(r io.Reader, cfg Config) (*Engine, error) {
	e, err := restore(gob.NewDecoder(r), cfg)
	if err != nil {
		return nil, fmt.Errorf("restore engine: %w: %w", ErrState, err)
	}

	return e, nil
}

func restore(dec *gob.Decoder, cfg Config) (*Engine, error) {
	var version int
	if err := dec.Decode(&version); err != nil {
		return nil, err
	}

	if version != stateVersion {
		return nil, fmt.Errorf("version %d, want %d", version, stateVersion)
	}

	var layouts []*frame.Layout
	if err := dec.Decode(&layouts); err != nil {
		return nil, err
	}

	if n := len(layouts); n < 1 || n > 2 || !layouts[0].Valid() || !layouts[n-1].Valid() {
		return nil, errors.New("not a layout")
	}

	e := New(cfg, layouts[len(layouts)-1])
	if len(layouts) > 1 {
		e.setLayout(layouts[0])
		clear(e.carried)
	}

	all := e.fields()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var is string
		if err := dec.Decode(&is); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		if is != name {
			return nil, fmt.Errorf("%s: it is %.40q", name, is)
		}

		if err := decode(dec, all[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}

	return e, e.check()
}

// decode fills a field of a new engine. Its maps are there already: gob makes a map
// as large as the stream says, and fills one that is there as far as there are bytes.
func decode(dec *gob.Decoder, field any) error {
	v := reflect.ValueOf(pointer(field)).Elem()
	had := 0
	if v.Kind() == reflect.Slice {
		had = v.Len()
	}

	if err := dec.DecodeValue(v.Addr()); err != nil {
		return err
	}

	if _, free := field.(grows); !free && v.Kind() == reflect.Slice && v.Len() != had {
		return fmt.Errorf("%d values, want %d", v.Len(), had)
	}

	if _, ok := field.(counts); ok && !counted(v) {
		return errors.New("no count")
	}

	return nil
}

// pointer is the field itself.
func pointer(field any) any {
	switch f := field.(type) {
	case grows:
		return f.list
	case counts:
		return f.number
	}

	return field
}

// counted reports whether a number, or each of a list, can be a count.
func counted(v reflect.Value) bool {
	if v.CanInt() {
		return v.Int() >= 0 && v.Int() <= min(mostCount, int64(1)<<(v.Type().Bits()-2))
	}

	for i := range v.Len() {
		if !counted(v.Index(i)) {
			return false
		}
	}

	return true
}

// Configure changes the thresholds from the next step on.
func (e *Engine) Configure(cfg Config) { e.cfg = cfg }

// Layout is who is who in the step that was observed last.
func (e *Engine) Layout() *frame.Layout { return e.layout }

// fields is the state of the engine and of all its parts.
func (e *Engine) fields() fields {
	all := fields{}
	add := func(part string, f fields) {
		for name, p := range f {
			all[part+"."+name] = p
		}
	}
	add("engine", e.state())
	for s := range signals {
		add("track-"+signalMetric[s], e.tracks[s].state())
		add("sharing-"+signalMetric[s], e.sharing[s].state())
		add("experts-"+signalMetric[s], e.experts[s].state())
	}

	add("track-whole", e.whole.state())
	add("track-alone", e.alone.state())
	add("tokens", e.tokens.state())
	add("inner", e.inner.state())
	add("saver", e.saver.state())
	add("links", e.links.state())
	add("level", e.level.state())
	add("storage", e.storage.state())
	add("recent", e.recent.state())
	add("line", e.line.state())
	return all
}

// check reports numbers of a restored engine that no engine has and that a panic
// would follow from: indices of rows, and lengths that depend on each other.
func (e *Engine) check() error {
	for s := range signals {
		if err := e.tracks[s].check(); err != nil {
			return fmt.Errorf("track of %s: %w", signalMetric[s], err)
		}
	}

	for _, t := range []*track{e.whole, e.alone} {
		if err := t.check(); err != nil {
			return fmt.Errorf("track: %w", err)
		}
	}

	if n := len(e.pace.Past); n > window {
		return fmt.Errorf("pace: %d steps, want %d at most", n, window)
	}

	for _, f := range e.ledger.Faults {
		if f.Row < 0 || f.Row >= e.n || e.layout.Role[f.Row] < 0 {
			return fmt.Errorf("ledger: a fault of row %d", f.Row)
		}
	}

	for i := range e.ledger.Played {
		p := &e.ledger.Played[i]
		if p.At != 0 && (len(p.Ends) != e.graph.Lanes() || len(p.Plain) != e.graph.Lanes() || len(p.Usual) != len(e.graph.Usual())) {
			return fmt.Errorf("ledger: a step of %d lanes, want %d", len(p.Ends), e.graph.Lanes())
		}
	}

	for _, w := range e.wires.Of {
		for _, r := range w.Rows {
			if r < 0 || int(r) >= e.n {
				return fmt.Errorf("wire %s: row %d", w.Name, r)
			}
		}

		if w.Slow && len(w.Recent) == 0 || len(w.Recent) != len(w.Steps) {
			return fmt.Errorf("wire %s: %d windows of %d steps", w.Name, len(w.Recent), len(w.Steps))
		}
	}

	for _, b := range e.level.blocks {
		if len(b) != len(e.level.labels) {
			return fmt.Errorf("level: %d blocks, want %d", len(b), len(e.level.labels))
		}
	}

	return e.recent.check()
}

// check holds that a unit without a role is suspected of nothing: nobody is its peer.
func (t *track) check() error {
	for u, g := range t.role {
		if g < 0 && (t.phase[u] != ok || t.passes[u] > 0 || t.lanePasses[u] > 0) {
			return fmt.Errorf("unit %d has no role", u)
		}
	}

	return nil
}

func (h *recent) check() error {
	for _, list := range [][][]float32{h.cells[:], h.adjusted[:]} {
		for _, v := range list {
			if v != nil && len(v) != window*h.n {
				return fmt.Errorf("recent: %d values, want %d", len(v), window*h.n)
			}
		}
	}

	return nil
}
