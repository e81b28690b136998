package record

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
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
	dst = appendNumber(append(dst, `,"dur":`...), r.Dur)
	if r.Side == Device {
		dst = append(dst, `,"side":"device"`...)
	}

	dst = optional(dst, `,"host_start":`, r.HostStart, 0)
	dst = optional(dst, `,"host_dur":`, r.HostDur, 0)
	dst = optional(dst, `,"exposed":`, r.Exposed, -1)
	if r.Ring != 0 {
		dst = appendDecimal(append(dst, `,"ring":`...), uint64(r.Ring))
		dst = appendDecimal(append(dst, `,"seq":`...), r.Seq)
	}

	if r.Thread != 0 {
		dst = appendDecimal(append(dst, `,"thread":`...), r.Thread)
	}

	return r.appendPayload(dst)
}

// appendHead appends the line up to the start.
func (r *Record) appendHead(dst []byte) []byte {
	if k := r.Kind.Known(); k != Other {
		dst = append(dst, kindHeads[k]...)
	} else {
		dst = appendText(append(dst, `{"kind":`...), r.Word())
	}

	if r.Step != NoStep {
		dst = appendNumber(append(dst, `,"step":`...), r.Step)
	}

	return appendNumber(append(dst, `,"start":`...), r.Start)
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

	return appendNumber(append(dst, key...), v)
}

// optionalText appends a key with its text, unless that is empty.
func optionalText(dst []byte, key, s string) []byte {
	if s == "" {
		return dst
	}

	return appendText(append(dst, key...), s)
}

// appendNumber appends v as strconv.AppendInt does.
func appendNumber(dst []byte, v int64) []byte {
	if v < 0 {
		return strconv.AppendInt(dst, v, 10)
	}

	return appendDecimal(dst, uint64(v))
}

// appendDecimal appends v as strconv.AppendUint does, eight digits at a time: a line has
// six numbers, and most of them have eight to nineteen digits. A ring's number has one.
func appendDecimal(dst []byte, v uint64) []byte {
	if v >= eightDigits {
		dst = appendDecimal(dst, v/eightDigits)
		return binary.LittleEndian.AppendUint64(dst, zeros|decimals(uint32(v%eightDigits)))
	}

	if v < 10 {
		return append(dst, '0'+byte(v))
	}

	x := decimals(uint32(v))
	leading := bits.TrailingZeros64(x|1<<56) >> 3 // the last digit always stands
	n := len(dst) + 8 - leading
	return binary.LittleEndian.AppendUint64(dst, (zeros|x)>>(8*leading))[:n]
}

const (
	eightDigits = 100_000_000
	// zeros are eight ASCII zeros.
	zeros = ones * '0'
)

// decimals returns the eight decimal digits of v, which is below 10^8, the first in the
// lowest byte: halves of four digits, of two, of one, all at once. The divisions are
// multiplications and shifts, which are exact for 10486/2^20 below 10^4 and for 103/2^10
// below 100.
func decimals(v uint32) uint64 {
	x := uint64(v/10000) | uint64(v%10000)<<32
	h := x * 10486 >> 20 & 0x7f_0000007f // each / 100
	x = h | (x-100*h)<<16
	h = x * 103 >> 10 & 0x0f_000f_000f_000f // each / 10
	return h | (x-10*h)<<8
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
	for i := range len(s) {
		if special[s[i]] {
			return appendEscaped(append(dst, s[:i]...), s[i:])
		}
	}

	return append(append(dst, s...), '"')
}

// special are the bytes that end a plain run of text.
var special = func() (t [256]bool) {
	for c := range t {
		t[c] = c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf
	}

	return t
}()

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
