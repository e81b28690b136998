//go:build !amd64

package ring

// fastStores is false: slots are written in Go, with atomic stores where order counts.
const fastStores = false

func publishSlot(*lane, *Slot, *byte)    { panic("BUG: no fast stores on this processor") }
func openSlot(*byte, *Slot)              { panic("BUG: no fast stores on this processor") }
func endSlot(*lane, *Slot, *byte, *byte) { panic("BUG: no fast stores on this processor") }
