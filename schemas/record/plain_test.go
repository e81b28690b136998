package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// plain is the obvious codec: the oracle that the quick one must agree with.
type plain struct {
	Kind      string `json:"kind"`
	Step      int64  `json:"step"`
	Start     int64  `json:"start"`
	Dur       int64  `json:"dur"`
	Side      string `json:"side"`
	HostStart int64  `json:"host_start"`
	HostDur   int64  `json:"host_dur"`
	Exposed   int64  `json:"exposed"`
	Ring      uint32 `json:"ring"`
	Seq       uint64 `json:"seq"`
	Thread    uint64 `json:"thread"`
	Op        string `json:"op"`
	OpRaw     string `json:"op_raw"`
	Group     string `json:"group"`
	Peer      int32  `json:"peer"`
	Count     int64  `json:"count"`
	Dtype     string `json:"dtype"`
	Bytes     int64  `json:"bytes"`
	Tokens    int64  `json:"tokens"`
	Path      string `json:"path"`
	Open      bool   `json:"open"`
}

var plainKeys = []string{
	"kind", "step", "start", "dur", "side", "host_start", "host_dur", "exposed", "ring", "seq",
	"thread", "op", "op_raw", "group", "peer", "count", "dtype", "bytes", "tokens", "path", "open",
}

// plainParse reads a record line with encoding/json. fold tells that the line has
// a key that differs from one of ours in case only: there encoding/json and
// FORMAT.md disagree, so the oracle leaves such keys out first.
func plainParse(line []byte) (r Record, err error) {
	if line, err = withoutFolded(line); err != nil {
		return r, err
	}

	x := plain{Step: -1, Start: math.MinInt64, Dur: math.MinInt64, Side: "host", Exposed: -1, Peer: -1}
	if err := json.Unmarshal(line, &x); err != nil {
		return r, err
	}

	if x.Start == math.MinInt64 || x.Dur == math.MinInt64 {
		return r, fmt.Errorf("no start or dur")
	}

	if x.Side != "host" && x.Side != "device" {
		return r, fmt.Errorf("side %q", x.Side)
	}

	r = Record{
		Kind: KindOf(x.Kind), Open: x.Open, Step: x.Step, Start: x.Start, Dur: x.Dur,
		HostStart: x.HostStart, HostDur: x.HostDur, Exposed: x.Exposed, Ring: x.Ring, Seq: x.Seq,
		Thread: x.Thread, Op: x.Op, OpRaw: x.OpRaw, Group: x.Group, Peer: x.Peer, Count: x.Count,
		Dtype: x.Dtype, Bytes: x.Bytes, Tokens: x.Tokens, Path: x.Path,
	}
	if x.Side == "device" {
		r.Side = Device
	}

	if r.Kind == Other {
		r.Name = x.Kind
	}

	return r, nil
}

// withoutFolded returns the line without keys that only fold to one of ours.
func withoutFolded(line []byte) ([]byte, error) {
	if !oddKeys(line) {
		return line, nil
	}

	var m map[string]json.RawMessage
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, err
	}

	folded := false
	for k := range m {
		for _, ours := range plainKeys {
			if k != ours && strings.EqualFold(k, ours) {
				folded = true
				delete(m, k)
			}
		}
	}

	if !folded {
		return line, nil
	}

	return json.Marshal(m) // duplicates are gone: the generator never has both
}

// oddKeys reports whether anything that may be a key has another byte than ours
// have: only such a key folds to one of ours without being it.
func oddKeys(line []byte) bool {
	for i, c := range line {
		if c != ':' {
			continue
		}

		key := bytes.TrimRight(line[:i], " \t\r\n")
		if !bytes.HasSuffix(key, []byte{'"'}) {
			continue
		}

		key = key[:len(key)-1]
		for _, c := range key[bytes.LastIndexByte(key, '"')+1:] {
			if (c < 'a' || c > 'z') && c != '_' {
				return true
			}
		}
	}

	return false
}

// plainLine writes a record with encoding/json, keys in FORMAT.md's order.
func plainLine(r Record) []byte {
	var parts []string
	add := func(key string, v any, absent bool) {
		if absent {
			return
		}

		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}

		parts = append(parts, fmt.Sprintf("%q:%s", key, b))
	}
	add("kind", r.Word(), false)
	add("step", r.Step, r.Step == NoStep)
	add("start", r.Start, false)
	add("dur", r.Dur, false)
	add("side", "device", r.Side == Host)
	add("host_start", r.HostStart, r.HostStart == 0)
	add("host_dur", r.HostDur, r.HostDur == 0)
	add("exposed", r.Exposed, r.Exposed == -1)
	add("ring", r.Ring, r.Ring == 0)
	add("seq", r.Seq, r.Ring == 0)
	add("thread", r.Thread, r.Thread == 0)
	add("op", r.Op, r.Op == "")
	add("op_raw", r.OpRaw, r.OpRaw == "")
	add("group", r.Group, r.Group == "")
	add("peer", r.Peer, r.Peer == NoPeer)
	add("count", r.Count, r.Count == 0)
	add("dtype", r.Dtype, r.Dtype == "")
	add("bytes", r.Bytes, r.Bytes == 0)
	add("tokens", r.Tokens, r.Tokens == 0)
	add("path", r.Path, r.Path == "")
	add("open", true, !r.Open)
	return []byte("{" + strings.Join(parts, ",") + "}\n")
}
