package ring

import (
	"errors"
	"runtime/debug"
)

// A mapping faults when somebody truncates its file. Passages that touch one
// begin with a deferred survive or Survived:
//
//	defer survive(debug.SetPanicOnFault(true))

// errFault says that the memory of a ring went away.
var errFault = errors.New("the ring's file was truncated by somebody else")

// survive ends a passage; a fault in it ends it early and does nothing else.
func survive(was bool) {
	debug.SetPanicOnFault(was)
	if v := recover(); v != nil && !isFault(v) {
		panic(v)
	}
}

// Survived looks at what recover returned in a deferred function: nil when
// nothing happened, errFault after a fault. Every other panic goes on.
func Survived(v any) error {
	switch {
	case v == nil:
		return nil
	case isFault(v):
		return errFault
	}

	panic(v)
}

// isFault tells the runtime's error for a fault at an address from other panics: of the
// runtime's errors it alone has the method, as debug.SetPanicOnFault documents.
func isFault(v any) bool {
	_, ok := v.(interface{ Addr() uintptr })
	return ok
}
