package record

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
)

// ID is a 64-bit identity: of an incarnation, a segment or a batch. It is
// written as 16 lower-case hex digits in text and JSON (JavaScript's numbers
// can't hold it) and as UInt64 in the stores.
type ID uint64

// String returns 16 lower-case hex digits.
func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil {
		return fmt.Errorf("parse id %q: want 16 hex digits", b)
	}

	*id = ID(v)
	return nil
}

// HashID returns FNV-1a (64 bit) over the parts, each preceded by its length as
// 8 little-endian bytes so that ("ab","c") and ("a","bc") differ.
func HashID(parts ...string) ID {
	h := fnv.New64a()
	var n [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}

	return ID(h.Sum64())
}

// Mixed returns the bits of id spread: FNV changes its low bits most by what it reads last.
// The mixing is splitmix64's.
func (id ID) Mixed() uint64 {
	h := uint64(id)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// IncarnationOf returns the incarnation of a process: HashID of its boot id (as
// /proc/sys/kernel/random/boot_id prints it, without the newline), its pid and
// its start in clock ticks after boot (field 22 of /proc/<pid>/stat), both in
// decimal. The recorders in C and Python compute the same.
func IncarnationOf(bootID string, pid int, startTicks uint64) ID {
	return HashID(bootID, strconv.Itoa(pid), strconv.FormatUint(startTicks, 10))
}
