package record

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// AppendLine appends the record as one line with its '\n', keys in the order of
// FORMAT.md, and returns the extended buffer. A value at its "absent" value is
// not written. Whatever the strings hold, the line is valid JSON without another
// '\n': bytes that are not UTF-8 become U+FFFD.
func (r *Record) AppendLine(dst []byte) []byte {
	dst = r.appendHead(dst)
	dst = strconv.AppendInt(append(dst, `,"dur":`...), r.Dur, 10)
	if r.Side == Device {
		dst = append(dst, `,"side":"device"`...)
	}

	dst = optional(dst, `,"host_start":`, r.HostStart, 0)
	dst = optional(dst, `,"host_dur":`, r.HostDur, 0)
	dst = optional(dst, `,"exposed":`, r.Exposed, -1)
	if r.Ring != 0 {
		dst = strconv.AppendUint(append(dst, `,"ring":`...), uint64(r.Ring), 10)
		dst = strconv.AppendUint(append(dst, `,"seq":`...), r.Seq, 10)
	}

	if r.Thread != 0 {
		dst = strconv.AppendUint(append(dst, `,"thread":`...), r.Thread, 10)
	}

	return r.appendPayload(dst)
}

// appendHead appends the line up to the start.
func (r *Record) appendHead(dst []byte) []byte {
	if r.Kind == Other {
		dst = appendText(append(dst, `{"kind":`...), r.Name)
	} else {
		dst = append(append(append(dst, `{"kind":"`...), kindWords[r.Kind.Known()]...), '"')
	}

	if r.Step != NoStep {
		dst = strconv.AppendInt(append(dst, `,"step":`...), r.Step, 10)
	}

	return strconv.AppendInt(append(dst, `,"start":`...), r.Start, 10)
}

// appendPayload appends the keys from op to the end of the line.
func (r *Record) appendPayload(dst []byte) []byte {
	dst = optionalText(dst, `,"op":`, r.Op)
	dst = optionalText(dst, `,"op_raw":`, r.OpRaw)
	dst = optionalText(dst, `,"group":`, r.Group)
	dst = optional(dst, `,"peer":`, int64(r.Peer), int64(NoPeer))
	dst = optional(dst, `,"count":`, r.Count, 0)
	dst = optionalText(dst, `,"dtype":`, r.Dtype)
	dst = optional(dst, `,"bytes":`, r.Bytes, 0)
	dst = optional(dst, `,"tokens":`, r.Tokens, 0)
	dst = optionalText(dst, `,"path":`, r.Path)
	if r.Open {
		dst = append(dst, `,"open":true`...)
	}

	return append(dst, '}', '\n')
}

// optional appends a key with its number, unless that is the one of an absent key.
func optional(dst []byte, key string, v, absent int64) []byte {
	if v == absent {
		return dst
	}

	return strconv.AppendInt(append(dst, key...), v, 10)
}

// optionalText appends a key with its text, unless that is empty.
func optionalText(dst []byte, key, s string) []byte {
	if s == "" {
		return dst
	}

	return appendText(append(dst, key...), s)
}

// AppendLine appends the identity as one line with its '\n'.
func (m *Meta) AppendLine(dst []byte) []byte { return appendControl(dst, LineMeta, m) }

// AppendLine appends the loss as one line with its '\n'.
func (l *Loss) AppendLine(dst []byte) []byte { return appendControl(dst, LineLoss, l) }

// AppendLine appends the switch as one line with its '\n'.
func (s *Switch) AppendLine(dst []byte) []byte { return appendControl(dst, LineSwitch, s) }

// AppendLine appends the end as one line with its '\n'.
func (e *End) AppendLine(dst []byte) []byte { return appendControl(dst, LineEnd, e) }

// appendControl appends a control line: there are a few a segment, so speed does not matter.
func appendControl(dst []byte, t LineType, v any) []byte {
	b, err := json.Marshal(map[string]any{t.String(): v})
	if err != nil {
		panic("BUG: control line is not JSON: " + err.Error()) // strings, integers and maps of them only
	}

	return append(append(dst, b...), '\n')
}

// appendText appends s as a JSON string, which it leaves to encoding/json where that is more
// than s between quotes.
func appendText(dst []byte, s string) []byte {
	if unescaped(s) {
		dst = append(dst, '"')
		return append(append(dst, s...), '"')
	}

	text, err := json.Marshal(s)
	if err != nil {
		panic("BUG: a string is not JSON: " + err.Error())
	}

	return append(dst, text...)
}

// unescaped reports whether a text stands in JSON as it is.
func unescaped[T string | []byte](s T) bool {
	for i := range len(s) {
		if special[s[i]] {
			return false
		}
	}

	return true
}

// special are the bytes that end a plain run of text.
var special = func() (t [256]bool) {
	for c := range t {
		t[c] = c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf
	}

	return t
}()
