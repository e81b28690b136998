package detect

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"

	"github.com/laggard-dev/laggard/analyzer/detect/state"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/frame"
)

// stateVersion is the version of the saved state; another one is not read. It rises
// with every change of what is saved or of what it means.
const stateVersion = 48

// ErrState is returned by Restore when the bytes are no state of this version: of
// another one, cut, damaged or made up. Whoever gets it begins anew from the rows.
var ErrState = errors.New("no usable state of this version")

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

	if err := e.fields().Encode(enc); err != nil {
		return fmt.Errorf("save engine: %w", err)
	}

	return nil
}

// Restore makes an engine of what Save wrote. It may read beyond it.
//
// What it reads may be damaged or hostile: lists have the lengths that the layout
// gives them and indices are inside their lists, or the error is ErrState. Memory is
// bounded by the bytes that are there, not by what they announce.
func Restore(r io.Reader, cfg threshold.Config) (*Engine, error) {
	e, err := restore(gob.NewDecoder(r), cfg)
	if err != nil {
		return nil, fmt.Errorf("restore engine: %w: %w", ErrState, err)
	}

	return e, nil
}

func restore(dec *gob.Decoder, cfg threshold.Config) (*Engine, error) {
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

	if err := e.fields().Decode(dec); err != nil {
		return nil, err
	}

	return e, e.check()
}

// Configure changes the thresholds from the next step on.
func (e *Engine) Configure(cfg threshold.Config) { e.cfg = cfg }

// Layout is who is who in the step that was observed last, nil before the first.
func (e *Engine) Layout() *frame.Layout { return e.layout }

// parts are what has a state of its own, by name.
func (e *Engine) parts() map[string]interface{ State() state.Fields } {
	all := map[string]interface{ State() state.Fields }{
		"tokens": e.tokens, "inner": e.inner, "backward": e.backward, "exposure": e.exposure, "saver": e.saver, "links": e.links, "level": e.level,
		"storage": e.storage, "recent": e.recent, "costs": e.costs,
	}
	for s := range signals {
		all["track-"+signalMetric[s]], all["alone-"+signalMetric[s]] = e.tracks[s], e.alone[s]
		all["sharing-"+signalMetric[s]], all["experts-"+signalMetric[s]] = e.sharing[s], e.experts[s]
	}

	for s := range e.wholes {
		all["whole-"+signalMetric[s]] = e.wholes[s]
	}

	return all
}

// fields is the state of the engine and of all its parts.
func (e *Engine) fields() state.Fields {
	all := state.Fields{}
	all.Add("engine", e.state())
	for name, p := range e.parts() {
		all.Add(name, p.State())
	}

	return all
}

// check reports numbers of a restored engine that no engine has and that a panic
// would follow from: indices of rows, and lengths that depend on each other.
func (e *Engine) check() error {
	if n := len(e.pace.Past); n > threshold.Window {
		return fmt.Errorf("pace: %d steps, want %d at most", n, threshold.Window)
	}

	for _, cases := range e.cases {
		for r := range cases {
			if r < 0 || r >= e.n {
				return fmt.Errorf("cases: row %d of %d", r, e.n)
			}
		}
	}

	for name, p := range e.parts() {
		if c, ok := p.(interface{ Check() error }); ok {
			if err := c.Check(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}

	return nil
}
