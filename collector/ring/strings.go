package ring

import (
	"encoding/binary"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Strings is a process's strings area before and after its file exists: ids are
// given out from the first Intern on, the file gets the same bytes later. All
// methods may be called from any goroutine.
type Strings struct {
	mu      sync.Mutex
	image   []byte // what stands, or will stand, in the area
	ids     map[string]uint16
	count   int      // ids given out
	refused uint64   // strings that found no room
	p       *Process // whose file gets them, nil before attach
}

// NewStrings returns an empty area.
func NewStrings() *Strings { return &Strings{ids: make(map[string]uint16)} }

// Intern returns the id of s, the same one each time. It is 0, the empty string,
// when the area is full or 65535 ids are out; that is counted.
func (s *Strings) Intern(v string) uint16 {
	if v == "" {
		return 0
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.ids[v]; ok {
		return id
	}

	size := 8 + (len(v)+7)&^7
	if s.count >= math.MaxUint16 || len(s.image)+size > stringsSize {
		s.refused++
		if s.p != nil {
			s.publishLocked(len(s.image))
		}

		return 0
	}

	// An entry: length, checksum, bytes, zeros up to a multiple of 8 (schemas/FORMAT.md section 2.1).
	at := len(s.image)
	s.image = binary.LittleEndian.AppendUint32(s.image, uint32(len(v)))
	s.image = binary.LittleEndian.AppendUint32(s.image, sum(CRC32C, []byte(v)))
	s.image = append(s.image, v...)
	for len(s.image) < at+size {
		s.image = append(s.image, 0)
	}

	s.count++
	id := uint16(s.count)
	s.ids[v] = id
	if s.p != nil {
		s.publishLocked(at)
	}

	return id
}

// publishLocked copies the image from an offset on into the file. The length comes last:
// what lies below it is whole for whoever reads it.
func (s *Strings) publishLocked(from int) {
	defer survive(debug.SetPanicOnFault(true))
	copy(s.p.mem[processHeader+from:], s.image[from:])
	atomic.StoreUint64(s.p.u64(pLostStrings), s.refused)
	atomic.StoreUint32(s.p.u32(pStringsUsed), uint32(len(s.image)))
}

// attach copies the strings so far into the mapped process file and sends the
// later ones there.
func (s *Strings) attach(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p = p
	s.publishLocked(0)
}

// detach ends the writing into the mapped file, which is about to be unmapped.
func (s *Strings) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p = nil
}
