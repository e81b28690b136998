package marker

import (
	"encoding/json"
	"strconv"
)

// Append appends the line, with its '\n', as TaskD writes it: its key order and
// the escapes of Go's encoding/json.
func Append(dst []byte, m *Marker) []byte {
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

// appendPair appends two numbers that stand side by side; the keys bring their punctuation.
func appendPair(dst []byte, k1 string, v1 uint32, k2 string, v2 uint32) []byte {
	dst = strconv.AppendUint(append(dst, k1...), uint64(v1), 10)
	return strconv.AppendUint(append(dst, k2...), uint64(v2), 10)
}

// appendText appends s as encoding/json writes a string.
func appendText(dst, s []byte) []byte {
	text, err := json.Marshal(string(s))
	if err != nil {
		panic("BUG: a string is not JSON: " + err.Error())
	}

	return append(dst, text...)
}
