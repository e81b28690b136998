package ring

import "golang.org/x/sys/cpu"

// Go's only ordered store is an exchange on this processor, which waits for all
// stores before it: five of them cost a range more than its two looks at the clock.
// Here every store is a release already; these are plain ones that the compiler
// can't move. They are for rings of checksum kind CRC32C.

// ahead is how many slots are between the one that is written and the one whose line
// is asked for, as in collector/native.
const ahead = 32

// The assembly reads it.
const _ = ahead

// fastStores says that publishSlot, openSlot and endSlot can be used: their checksum is the CRC32 instruction of SSE4.2.
var fastStores = cpu.X86.HasSSE42

// publishSlot writes the next slot of l, which has room, stores the head, and counts
// the range as emitted. mem is the ring file's.
//
//go:noescape
func publishSlot(l *lane, s *Slot, mem *byte)

// openSlot writes an open-range slot, checksum and state last, in one store.
//
//go:noescape
func openSlot(slot *byte, s *Slot)

// endSlot names in an open-range slot the number that the record gets, does
// publishSlot, and frees the slot.
//
//go:noescape
func endSlot(l *lane, s *Slot, mem, slot *byte)
