package rollup

// maxRings bounds the rings of one incarnation that are followed: a ring is a writing
// thread, and a trainer has a few. maxStretches bounds the stretches of numbers that are known
// of one ring: a gap begins a new one. Lines are hostile input, and together the two hold
// 384 KiB at most.
const (
	maxRings     = 256
	maxStretches = 64
)

// ring is what was read of one ring of an incarnation.
type ring struct {
	Mark int64  `json:"mark"` // latest host end of its records
	Seen passes `json:"seen"` // their numbers
}
