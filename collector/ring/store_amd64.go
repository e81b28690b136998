package ring

import "golang.org/x/sys/cpu"

// Go's only ordered store is an exchange on this processor, which waits for all
// stores before it: five of them cost a range more than its two looks at the clock.
// Here every store is a release already; these are plain ones that the compiler
// can't move.

// ahead is how many slots are between the one that is written and the one whose line
// is asked for, as in collector/native.
const ahead = 32

var fastStores = cpu.X86.HasSSE42

// storeWords writes a slot of checksum kind CRC32C, the checksum last.
//
//go:noescape
func storeWords(dst *byte, w *[8]uint64)

// release64 stores v, and asks for the line at ahead, which will be written.
//
//go:noescape
func release64(p *uint64, v uint64, ahead *byte)

//go:noescape
func release32(p *uint32, v uint32)
