package marker

import (
	"strconv"
	"unicode/utf8"
)

// Append appends the line, with its '\n', as TaskD writes it: its key order and
// the escapes of Go's encoding/json.
func Append(dst []byte, m *Marker) []byte {
	switch m.Kind {
	case KindAPI:
		dst = appendSpan(dst, m)
		dst = appendPair(dst, `,"Pt":{"ProcessId":`, m.Process, `,"ThreadId":`, m.Thread)
		dst = strconv.AppendUint(append(dst, `},"CorrelationId":`...), m.ID, 10)
	case KindKernel:
		dst = appendSpan(dst, m)
		dst = appendPair(dst, `,"Ds":{"DeviceId":`, m.Device, `,"StreamId":`, m.Stream)
		dst = strconv.AppendUint(append(dst, `},"CorrelationId":`...), m.ID, 10)
		dst = appendText(append(dst, `,"Type":`...), m.Type)
	default:
		dst = appendPair(dst, `{"Kind":`, m.Kind, `,"Flag":`, m.Flag)
		dst = strconv.AppendUint(append(dst, `,"SourceKind":`...), uint64(m.Source), 10)
		dst = strconv.AppendUint(append(dst, `,"Timestamp":`...), m.Timestamp, 10)
		dst = strconv.AppendUint(append(dst, `,"Id":`...), m.ID, 10)
		dst = appendPair(dst, `,"MsptiObjectId":{"Pt":{"ProcessId":`, m.Process, `,"ThreadId":`, m.Thread)
		dst = appendPair(dst, `},"Ds":{"DeviceId":`, m.Device, `,"StreamId":`, m.Stream)
		dst = appendText(append(dst, `}},"Name":`...), m.Name)
		dst = appendText(append(dst, `,"Domain":`...), m.Domain)
		return append(dst, '}', '\n')
	}

	dst = appendText(append(dst, `,"Name":`...), m.Name)
	return append(dst, '}', '\n')
}

func appendPair(dst []byte, k1 string, v1 uint32, k2 string, v2 uint32) []byte {
	dst = strconv.AppendUint(append(dst, k1...), uint64(v1), 10)
	return strconv.AppendUint(append(dst, k2...), uint64(v2), 10)
}

func appendSpan(dst []byte, m *Marker) []byte {
	dst = strconv.AppendUint(append(dst, `{"Kind":`...), uint64(m.Kind), 10)
	dst = strconv.AppendUint(append(dst, `,"Start":`...), m.Timestamp, 10)
	return strconv.AppendUint(append(dst, `,"End":`...), m.End, 10)
}

const hexDigits = "0123456789abcdef"

// appendText appends s as encoding/json writes a string: '<', '>', '&', U+2028
// and U+2029 escaped, what is no UTF-8 as �.
func appendText(dst, s []byte) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c >= 0x20 && c != '<' && c != '>' && c != '&':
				dst = append(dst, c)
			default:
				dst = appendControl(dst, c)
			}

			i++
			continue
		}

		r, n := utf8.DecodeRune(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(dst, `\ufffd`...)
		case r == '\u2028' || r == '\u2029':
			dst = append(dst, `\u202`...)
			dst = append(dst, hexDigits[r&15])
		default:
			dst = append(dst, s[i:i+n]...)
		}

		i += n
	}

	return append(dst, '"')
}

func appendControl(dst []byte, c byte) []byte {
	switch c {
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	}

	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
