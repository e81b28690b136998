package detect

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/laggard-dev/laggard/analyzer/frame"
)

// stateVersion is the version of the saved state; another one is not read.
const stateVersion = 5

// ErrState is returned by Restore when the bytes are no state of this version:
// begin anew from the store.
var ErrState = errors.New("not a saved state of this version")

// fields names the parts of a value that make its state. A test holds that every
// field of each type is either in here or known to be derived.
type fields map[string]any

// State returns everything the engine knows, as JSON: an engine that Restore
// makes of it goes on as if it had never stopped.
func (e *Engine) State() ([]byte, error) {
	all := map[string]json.RawMessage{}
	put := func(name string, f fields) error {
		b, err := pack(f)
		if err != nil {
			return fmt.Errorf("save %s: %w", name, err)
		}
		all[name] = b
		return nil
	}
	err := put("engine", e.state())
	for _, p := range e.parts() {
		err = errors.Join(err, put(p.name, p.fields))
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Version int                        `json:"version"`
		Config  Config                     `json:"config"`
		Layout  *frame.Layout              `json:"layout"`
		Parts   map[string]json.RawMessage `json:"parts"`
	}{stateVersion, e.cfg, e.layout, all})
}

// Restore makes an engine of what State returned. The thresholds are those of the
// saved engine; Configure changes them.
func Restore(b []byte) (*Engine, error) {
	var s struct {
		Version int                        `json:"version"`
		Config  Config                     `json:"config"`
		Layout  *frame.Layout              `json:"layout"`
		Parts   map[string]json.RawMessage `json:"parts"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("restore state: %w", errors.Join(ErrState, err))
	}
	if s.Version != stateVersion || !validLayout(s.Layout) {
		return nil, fmt.Errorf("restore state: %w", ErrState)
	}
	e := New(s.Config, s.Layout)
	get := func(name string, f fields) error {
		if err := unpack(s.Parts[name], f); err != nil {
			return fmt.Errorf("restore %s: %w", name, errors.Join(ErrState, err))
		}
		return nil
	}
	if err := get("engine", e.state()); err != nil {
		return nil, err
	}
	for _, p := range e.parts() {
		if err := get(p.name, p.fields); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Configure changes the thresholds from the next step on.
func (e *Engine) Configure(cfg Config) { e.cfg = cfg }

// validLayout reports whether all indices of a layout are inside it.
func validLayout(l *frame.Layout) bool {
	if l == nil {
		return false
	}
	n := len(l.Ranks)
	for _, k := range []int{len(l.Present), len(l.Incarnation), len(l.Fresh), len(l.Node), len(l.Device), len(l.Role), len(l.Replica)} {
		if k != n {
			return false
		}
	}
	in := func(v []int32, limit int) bool {
		for _, x := range v {
			if x < frame.None || int(x) >= limit {
				return false
			}
		}
		return true
	}
	ok := in(l.Node, len(l.Nodes)) && in(l.Role, len(l.Roles)) && in(l.Replica, len(l.Replicas)) && len(l.Partial) == len(l.Replicas)
	rows := func(v []int32) bool { return in(v, n) && (len(v) == 0 || minOf(v) >= 0) }
	for i := range l.Roles {
		ok = ok && rows(l.Roles[i].Rows)
	}
	for _, v := range l.Replicas {
		ok = ok && rows(v)
	}
	for i := range l.Groups {
		ok = ok && rows(l.Groups[i].Rows)
	}
	for r, p := range l.Present {
		ok = ok && (!p || l.Role[r] >= 0 && l.Replica[r] >= 0 && l.Node[r] >= 0)
	}
	return ok
}

func minOf(v []int32) int32 {
	m := v[0]
	for _, x := range v {
		m = min(m, x)
	}
	return m
}

type part struct {
	name   string
	fields fields
}

// parts lists everything with a state of its own.
func (e *Engine) parts() []part {
	var out []part
	for s := range signals {
		out = append(out, part{"track-" + signalMetric[s], e.tracks[s].state()}, part{"sharing-" + signalMetric[s], e.sharing[s].state()})
	}
	return append(out, part{"track-whole", e.whole.state()}, part{"track-alone", e.alone.state()},
		part{"tokens", e.tokens.state()}, part{"inner", e.inner.state()}, part{"saver", e.saver.state()}, part{"links", e.links.state()},
		part{"level", e.level.state()}, part{"storage", e.storage.state()}, part{"recent", e.recent.state()})
}

func (e *Engine) state() fields {
	return fields{
		"job": &e.job, "columns": &e.columns, "analysed": &e.analysed, "first_step": &e.firstStep, "last_step": &e.lastStep,
		"attempt": &e.attempt, "attempts": &e.attempts, "last_start": &e.lastStart, "expected": &e.expected, "measured": &e.measured, "off": &e.off,
		"world_size": &e.worldSize, "quarantined": &e.quarantined, "saving": &e.saving, "since_save": &e.sinceSave, "pace": &e.pace, "step_median": &e.stepMedian, "last_time": &e.lastTime, "ledger": &e.ledger, "marks": &e.marks, "line": &e.line,
		"seen": &e.seen, "measured_at": &e.measuredAt, "measured_step": &e.measuredStep, "estimated": &e.estimated, "host_only": &e.hostOnly, "judged": &e.judged, "history": &e.history, "events": &e.events, "carried": &e.carried,
		"cases": &caseList{&e.cases}, "wires": &e.wires.Of,
	}
}

func (t *track) state() fields {
	f := fields{
		"count": &t.count, "labels": &t.labels, "ring": &t.ring, "blocks": &t.blocks, "block": &t.block, "mu": &t.mu, "dev": &t.dev, "prev": &t.prev,
		"base": &t.base, "base_n": &t.baseN, "creep": &t.creep, "block_sd": &t.blockSD, "climb": &t.climb, "fall": &t.fall, "phase": &t.phase, "passes": &t.passes, "lane_passes": &t.lanePasses,
		"slow": &t.slow, "warm": &t.warm, "warmed": &t.warmed, "first": &t.first, "first_label": &t.firstLabel, "since": &t.since,
		"detected": &t.detected, "since_at": &t.sinceAt, "fall_at": &t.fallAt, "until": &t.until, "sum": &t.sum, "sum_n": &t.sumN, "z": &t.z,
		"effect": &t.effect, "mid": &t.mid, "slowly": &t.slowly,
		"sigma": &t.sigma, "sigmas": &t.sigmas, "sigma_n": &t.sigmaN,
		"rho_up": &t.rhoUp, "rho_down": &t.rhoDown, "tau": &t.tau, "tau_own": &t.tauOwn, "tau_lane": &t.tauLane,
		"warming": &t.warming, "news": &t.news,
	}
	for i := range t.laneMean {
		f[fmt.Sprint("lane_", lanes[i])] = &t.laneMean[i]
	}
	return f
}

func (s *sharing) state() fields {
	return fields{"used": &s.used, "common": &s.common, "columns": &s.columns, "active": &s.active, "slopes": &s.slopes,
		"sxy": &s.sxy, "sww": &s.sww, "sxx": &s.sxx, "terms": &s.terms, "orphan": &s.orphan, "mean": &s.mean, "wmean": &s.wmean, "seen": &s.seen}
}

func (c *covariate) state() fields {
	return fields{"sxy": &c.sxy, "stt": &c.stt, "sxx": &c.sxx, "columns": &c.columns}
}

func (in *inner) state() fields {
	return fields{"usual_wait": &in.usual[0], "usual_time": &in.usual[1], "past_wait": &in.past[0], "past_time": &in.past[1], "seen": &in.seen, "step": &in.step}
}

func (s *savers) state() fields {
	return fields{"ranks": &s.ranks, "nodes": &s.nodes, "run": &s.run, "proof": &s.proof, "count": &s.count, "past": &s.past, "past_n": &s.pastN, "since": &s.since, "third": &s.third, "last": &s.last,
		"rise": &s.rise, "cost": &s.cost, "sigma": &s.sigma, "sigma_n": &s.sigmaN, "recent": &s.recent, "saves": &s.saves, "savers": &s.savers, "every": &s.every, "last_save": &s.lastSave,
		"level": grows{&s.level}, "storage_run": &s.storageRun, "storage_since": &s.storageSince}
}

func (w *linkWatch) state() fields {
	f := fields{"ring": &w.ring, "base": &w.base, "base_n": &w.baseN, "noise": &w.noise, "phase": &w.phase, "passes": &w.passes,
		"since": &w.since, "found": &w.found, "until": &w.until, "calm": &w.calm, "gusts": &w.gusts, "gusting": &w.gusting, "gust": &w.gust, "cur": &w.cur, "rise": &w.rise, "cost": &w.cost,
		"labels": &w.labels, "count": &w.count, "classes": &w.classes, "busy": &w.busy}
	for m := range w.seen {
		f["seen_"+frame.Metric(m).String()] = &w.seen[m]
	}
	return f
}

func (v *levels) state() fields {
	f := fields{"spread_n": &v.spreadN, "bulk": &v.bulk, "labels": grows{&v.labels}, "first": &v.first}
	for k := range 2 {
		f[fmt.Sprint("sum_", k)], f[fmt.Sprint("sum_n_", k)] = &v.sum[k], &v.sumN[k]
		f[fmt.Sprint("now_", k)], f[fmt.Sprint("before_", k)] = &v.now[k], &v.before[k]
	}
	for k := range blockKinds {
		f[fmt.Sprint("blocks_", k)], f[fmt.Sprint("pending_", k)] = grows{&v.blocks[k]}, grows{&v.pending[k]}
	}
	return f
}

func (s *storage) state() fields {
	return fields{"n": &s.n, "slow": &s.slow, "cost": &s.cost, "top": &s.top, "total": &s.total}
}

func (h *recent) state() fields {
	f := fields{"steps": &h.steps, "works": &h.works, "adjusted_fp": grows{&h.adjusted[compute]}, "adjusted_self": grows{&h.adjusted[own]}}
	for m := range h.cells {
		f["cells_"+frame.Metric(m).String()] = grows{&h.cells[m]}
	}
	return f
}

// grows marks a list whose length is state, not layout.
type grows struct{ list any }

// caseList is the map of cases as a list: its key is a struct.
type caseList struct{ m *map[caseKey]finding }

type caseEntry struct {
	Key  caseKey
	Case finding
}

// MarshalJSON writes the cases as a list.
func (c *caseList) MarshalJSON() ([]byte, error) {
	list := []caseEntry{}
	for k, v := range *c.m {
		list = append(list, caseEntry{k, v})
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *caseList) UnmarshalJSON(b []byte) error {
	var list []caseEntry
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*c.m = map[caseKey]finding{}
	for _, x := range list {
		(*c.m)[x.Key] = x.Case
	}
	return nil
}

// pack writes fields as JSON; lists of numbers become base64 of their
// little-endian bytes, for JSON has no NaN and digits cost three times the room.
func pack(f fields) (json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for name, p := range f {
		if g, ok := p.(grows); ok {
			p = g.list
		}
		var v any = p
		if raw, ok := rawBytes(p); ok {
			v = base64.StdEncoding.EncodeToString(raw)
		}
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = b
	}
	return json.Marshal(out)
}

// unpack fills fields from what pack wrote. A list must have the length that the
// layout gives it.
func unpack(b json.RawMessage, f fields) error {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	for name, p := range f {
		raw, ok := in[name]
		if !ok {
			return fmt.Errorf("%s is missing", name)
		}
		free := false
		if g, ok := p.(grows); ok {
			p, free = g.list, true
		}
		if _, list := rawBytes(p); list {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			bytes, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := setBytes(p, bytes, free); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		if err := json.Unmarshal(raw, p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// rawBytes returns the bytes of a list of numbers, and whether p is one.
func rawBytes(p any) ([]byte, bool) {
	switch v := p.(type) {
	case *[]float32, *[]float64, *[]int32, *[]int64, *[]uint8, *[]uint16, *[]bool:
		b, err := binary.Append(nil, binary.LittleEndian, deref(v))
		return b, err == nil
	}
	return nil, false
}

func deref(p any) any {
	switch v := p.(type) {
	case *[]float32:
		return *v
	case *[]float64:
		return *v
	case *[]int32:
		return *v
	case *[]int64:
		return *v
	case *[]uint8:
		return *v
	case *[]uint16:
		return *v
	case *[]bool:
		return *v
	}
	panic("BUG: not a list of numbers")
}

// setBytes fills the list behind p.
func setBytes(p any, b []byte, free bool) error {
	switch v := p.(type) {
	case *[]float32:
		return setList(v, b, 4, free)
	case *[]float64:
		return setList(v, b, 8, free)
	case *[]int32:
		return setList(v, b, 4, free)
	case *[]int64:
		return setList(v, b, 8, free)
	case *[]uint8:
		return setList(v, b, 1, free)
	case *[]uint16:
		return setList(v, b, 2, free)
	case *[]bool:
		return setList(v, b, 1, free)
	}
	panic("BUG: not a list of numbers")
}

func setList[T any](v *[]T, b []byte, size int, free bool) error {
	if len(b)%size != 0 || !free && len(b)/size != len(*v) || len(b) > math.MaxInt32 {
		return fmt.Errorf("%d bytes for %d values", len(b), len(*v))
	}
	if free {
		*v = nil
		if len(b) > 0 {
			*v = make([]T, len(b)/size)
		}
	}
	_, err := binary.Decode(b, binary.LittleEndian, *v)
	return err
}
