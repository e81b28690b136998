package row

import "unsafe"

// near is the slot of a string by where it lies.
func near(s string) int {
	at := uint64(uintptr(unsafe.Pointer(unsafe.StringData(s)))) + uint64(len(s))
	return int(at * 0x9e3779b97f4a7c15 >> (64 - nearBits))
}

// same reports whether two strings are the same bytes of memory.
func same(a, b string) bool {
	return len(a) == len(b) && unsafe.StringData(a) == unsafe.StringData(b)
}
