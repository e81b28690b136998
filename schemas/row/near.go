package row

import "unsafe"

// near is the slot of a string by where it lies.
func near(s string) int {
	at := uintptr(unsafe.Pointer(unsafe.StringData(s)))
	return int((at>>3 ^ at>>9 ^ uintptr(len(s))) & (nearWords - 1))
}

// same reports whether two strings are the same bytes of memory.
func same(a, b string) bool {
	return len(a) == len(b) && unsafe.StringData(a) == unsafe.StringData(b)
}
