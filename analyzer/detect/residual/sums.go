package residual

import "math"

// sums follow how two values of ranks go together: sums of their products, which fade.
type sums struct{ XX, XY, YY, N float64 }

// fade forgets a part of what was added.
func (s *sums) fade(keep float64) {
	s.XX *= keep
	s.XY *= keep
	s.YY *= keep
	s.N *= keep
}

// add counts a pair of values, each about its own middle.
func (s *sums) add(x, y float32) {
	s.XX += float64(x * x)
	s.XY += float64(x * y)
	s.YY += float64(y * y)
	s.N++
}

// correlation is that of the two values, NaN where one of them was always the same.
func (s *sums) correlation() float64 {
	if s.XX <= 0 || s.YY <= 0 {
		return math.NaN()
	}

	return s.XY / math.Sqrt(s.XX*s.YY)
}
