// Package ring is the shared memory between a training process and the agent:
// the files of FORMAT.md section 2, how a recorder makes and fills them, and how
// the agent reads them.
//
// Invariant: one writer and one reader a ring. The writer publishes a slot by
// storing the head after the slot is complete and never overwrites one that the
// tail has not passed; the reader moves the tail only when what it passes is in
// a segment. So a SIGKILL of either side loses nothing that was published.
//
// The writing half (Process, Writer) maps the files and makes no system call
// once a ring exists. The reading half (Folder, Reader) reads no mapping: it
// copies with pread, checks what it copied and believes nothing, so that a file
// which is truncated, deleted or scribbled on costs records (counted) but never
// the agent. It maps one page of a ring, and only to store the tails there.
//
// Caveat: a pread of eight bytes is not atomic against the recorder's stores;
// settled says how the reader lives with that.
package ring

import "github.com/laggard-dev/laggard/schemas/record"

// The files, FORMAT.md section 2. These numbers are the format: none is changed
// or reused.
const (
	processMagic = "LAGPROC1"
	ringMagic    = "LAGRING1"
	version      = 1

	// ProcessName is the name of a process's identity file in its folder,
	// LockName that of the file whose flock says which agent drains the folder.
	ProcessName = "process"
	LockName    = "agent.lock"

	// A process's identity file: a header of one page, then the strings that slots name by ids of
	// 16 bits. 256 KiB hold 8,192 words of 17 to 24 bytes.
	processHeader = 4096
	stringsSize   = 256 << 10
	processSize   = processHeader + stringsSize

	// A ring file: a header of two pages, of which 4 KiB are the open-range table, then the slots. A
	// slot is one cache line.
	ringHeader = 8192
	slotSize   = 64

	// LightSlots and bulkSlots are the slots of a thread's two rings when the
	// process's budget allows; minSlots is the least.
	LightSlots = 1024
	bulkSlots  = 32768
	minSlots   = 64

	// budget bounds the bytes of all files of one process.
	budget = 16 << 20
	// fullRings threads get rings of full size, later ones smaller ones (fit).
	fullRings = 4

	// OpenLevels is how many ranges of one thread can be open at once and be
	// seen in the open-range table.
	OpenLevels = 64
)

// Offsets in process, bytes (schemas/FORMAT.md section 2.1). What the agent writes (the switch) and what the
// recorder counts are in cache lines of their own.
const (
	pVersion     = 8
	pStringsOff  = 12
	pStringsCap  = 16
	pPID         = 20
	pTicks       = 24
	pStarted     = 32
	pIncarnation = 40
	pNamespace   = 48
	pBootID      = 56
	bootIDSize   = 36
	pChecksum    = 92
	pState       = 96
	pIdentity    = 100
	pWanted      = 128
	pFollowed    = 132
	pFollowedAt  = 136
	pStringsUsed = 192
	pRings       = 196
	pLost        = 256
	lostKinds    = 16
	pLostStrings = 384
)

// Offsets in ring-<n>, bytes (schemas/FORMAT.md section 2.2). Each head and each tail has a cache line of its
// own: the recorder writes heads, the agent tails.
const (
	rVersion     = 8
	rHeaderSize  = 12
	rChecksum    = 16
	rNumber      = 20
	rLightSlots  = 24
	rBulkSlots   = 28
	rThread      = 32
	rState       = 40
	rLightHead   = 64
	rLightTail   = 128
	rBulkHead    = 192
	rBulkTail    = 256
	rDropped     = 320
	rDropFirst   = 384
	rDropLast    = 392
	rEmitted     = 448
	kindCounters = 8
	rOpen        = 1024
	rCounters    = 512 // what a reader copies of a header to know its counters
)

// State of a process or of a ring.
const (
	Live   uint32 = 1
	Closed uint32 = 2 // the recorder, or the thread, left in order
)

// Checksum kinds.
const (
	CRC32C   uint32 = 1 // Castagnoli
	CRC32    uint32 = 2 // IEEE, as in zlib: what Python has without a compiler
	Adler32  uint32 = 3 // of rings only, from Python on machines that show stores in order
	openMark        = uint32(1) << 31
)

// Bits of the switch word.
const (
	LightOn         uint32 = 1 << 0 // Step, FP, SaveCheckpoint, DataLoader
	CommunicationOn uint32 = 1 << 1
	AllOn                  = LightOn | CommunicationOn
	generationShift        = 8
)

// Lane is one of the two rings in a ring file.
type Lane uint8

// Light is for every kind but Communication, Bulk for Communication.
const (
	Light Lane = 0
	Bulk  Lane = 1
)

// LaneOf returns the lane that ranges of kind k go to.
func LaneOf(k record.Kind) Lane {
	if k == record.Communication {
		return Bulk
	}

	return Light
}

// Number returns the ring number of a lane of file ring-<n>: what stands in
// records and losses.
func Number(n uint32, l Lane) uint32 { return 2*n - 1 + uint32(l) }

// fileSize returns the bytes of a ring file.
func fileSize(light, bulk uint32) int64 {
	return ringHeader + slotSize*(int64(light)+int64(bulk))
}

// fit returns the slots of the n-th ring (from 1) of a process that has left
// bytes of its budget, or ok false when that ring doesn't fit. A trainer's first
// threads record most; the sizes fall so that each of 64 threads can wait half a
// second for the agent at 1,000 records/s, and 107 have a ring at all.
func fit(n uint32, left int64) (light, bulk uint32, ok bool) {
	switch {
	case n <= fullRings:
		bulk = bulkSlots
	case n <= 8:
		bulk = bulkSlots / 4
	case n <= 16:
		bulk = bulkSlots / 8
	case n <= 32:
		bulk = bulkSlots / 32
	case n <= 64:
		bulk = bulkSlots / 64
	default:
		bulk = minSlots
	}

	light = max(bulk/(bulkSlots/LightSlots), minSlots)
	return light, bulk, fileSize(light, bulk) <= left
}
