//go:build !amd64

package ring

const fastStores = false

func publishSlot(*lane, *Slot, *byte)    { panic("BUG: no fast stores on this processor") }
func openSlot(*byte, *Slot)              { panic("BUG: no fast stores on this processor") }
func endSlot(*lane, *Slot, *byte, *byte) { panic("BUG: no fast stores on this processor") }
