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
	_ = Survived(recover())
}

// Survived looks at what recover returned in a deferred function: nil when nothing happened,
// errFault after a fault. Every other panic goes on: of the runtime's errors, that for a fault
// at an address alone has the method, as debug.SetPanicOnFault documents.
func Survived(v any) error {
	switch v.(type) {
	case nil:
		return nil
	case interface{ Addr() uintptr }:
		return errFault
	}

	panic(v)
}
