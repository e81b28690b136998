package record

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// kindHeads are the beginnings of lines of the known kinds.
var kindHeads = func() (heads [KindCount]string) {
	for k, word := range kindWords {
		heads[k] = `{"kind":"` + word + `"`
	}

	return heads
}()

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

	if r.HostStart != 0 {
		dst = strconv.AppendInt(append(dst, `,"host_start":`...), r.HostStart, 10)
	}

	if r.HostDur != 0 {
		dst = strconv.AppendInt(append(dst, `,"host_dur":`...), r.HostDur, 10)
	}

	if r.Exposed != -1 {
		dst = strconv.AppendInt(append(dst, `,"exposed":`...), r.Exposed, 10)
	}

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
	if r.Kind != Other && r.Kind < KindCount {
		dst = append(dst, kindHeads[r.Kind]...)
	} else {
		dst = appendText(append(dst, `{"kind":`...), r.Word())
	}

	if r.Step != NoStep {
		dst = strconv.AppendInt(append(dst, `,"step":`...), r.Step, 10)
	}

	return strconv.AppendInt(append(dst, `,"start":`...), r.Start, 10)
}

// appendPayload appends the keys from op to the end of the line.
func (r *Record) appendPayload(dst []byte) []byte {
	if r.Op != "" {
		dst = appendText(append(dst, `,"op":`...), r.Op)
	}

	if r.OpRaw != "" {
		dst = appendText(append(dst, `,"op_raw":`...), r.OpRaw)
	}

	if r.Group != "" {
		dst = appendText(append(dst, `,"group":`...), r.Group)
	}

	if r.Peer != NoPeer {
		dst = strconv.AppendInt(append(dst, `,"peer":`...), int64(r.Peer), 10)
	}

	if r.Count != 0 {
		dst = strconv.AppendInt(append(dst, `,"count":`...), r.Count, 10)
	}

	if r.Dtype != "" {
		dst = appendText(append(dst, `,"dtype":`...), r.Dtype)
	}

	if r.Bytes != 0 {
		dst = strconv.AppendInt(append(dst, `,"bytes":`...), r.Bytes, 10)
	}

	if r.Tokens != 0 {
		dst = strconv.AppendInt(append(dst, `,"tokens":`...), r.Tokens, 10)
	}

	if r.Path != "" {
		dst = appendText(append(dst, `,"path":`...), r.Path)
	}

	if r.Open {
		dst = append(dst, `,"open":true`...)
	}

	return append(dst, '}', '\n')
}

// AppendLine appends the identity as one line with its '\n'.
func (m *Meta) AppendLine(dst []byte) []byte {
	return appendControl(dst, struct {
		Meta *Meta `json:"meta"`
	}{m})
}

// AppendLine appends the loss as one line with its '\n'.
func (l *Loss) AppendLine(dst []byte) []byte {
	return appendControl(dst, struct {
		Loss *Loss `json:"loss"`
	}{l})
}

// AppendLine appends the switch as one line with its '\n'.
func (s *Switch) AppendLine(dst []byte) []byte {
	return appendControl(dst, struct {
		Switch *Switch `json:"switch"`
	}{s})
}

// AppendLine appends the end as one line with its '\n'.
func (e *End) AppendLine(dst []byte) []byte {
	return appendControl(dst, struct {
		End *End `json:"end"`
	}{e})
}

// appendControl appends one of the four structs above: there are a few a
// segment, so speed does not matter.
func appendControl(dst []byte, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: control line is not JSON: " + err.Error()) // strings, integers and maps of them only
	}

	return append(append(dst, b...), '\n')
}

// appendText appends s as a JSON string.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	i := 0
	for ; len(s)-i >= 8 && specials(word8(s[i:])) == 0; i += 8 {
	}

	for ; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendEscaped(append(dst, s[:i]...), s[i:])
		}
	}

	return append(append(dst, s...), '"')
}

// word8 returns the first eight bytes of s as a little-endian word.
func word8(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// appendEscaped appends s with escapes, and the closing quote.
func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
		case c == '\n':
			dst = append(dst, '\\', 'n')
			i++
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			i++
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r) // U+FFFD for what is not UTF-8
			i += n
		}
	}

	return append(dst, '"')
}
