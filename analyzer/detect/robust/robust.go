// Package robust has the statistics that one outlier of many does not move: medians by
// selection, spreads about them, and the tail that their ratios are tested with.
//
// They are here, and not gonum's, where each is computed for every rank and step: by
// selection in place of float32 they are several times as fast as sorting float64
// (BenchmarkMedian). Distributions are gonum's.
//
// Invariant: a function without values returns NaN. Caveat: where it says so, the
// values are reordered or overwritten; none of them may be NaN (Compact leaves those out).
package robust

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// NaN stands for what was not measured.
var NaN = float32(math.NaN())

// Standard errors of a location: so many times sigma/sqrt n.
const (
	MedianLoss        = 1.2533 // of a median
	HodgesLehmannLoss = 1.05
)

// Kth partially sorts v so that v[k] is its k-th smallest value: selection about a
// median of three. v holds no NaN.
func Kth(v []float32, k int) float32 {
	for len(v) > 12 {
		a, b, c := v[0], v[len(v)/2], v[len(v)-1]
		p := max(min(a, b), min(max(a, b), c))
		n := below(v, p)
		if k < n {
			v = v[:n]
			continue
		}

		v, k = v[n:], k-n
		n = below(v, math.Nextafter32(p, float32(math.Inf(1)))) // those that are p, for many may be
		if k < n || n == 0 {
			return p
		}

		v, k = v[n:], k-n
	}

	Sort(v)
	return v[k]
}

// below moves the values below p to the front of v, and returns their number. No branch
// depends on a value: a wrong guess, one of two, takes longer than to move all of them.
func below(v []float32, p float32) (n int) {
	for i, x := range v {
		v[i], v[n] = v[n], x
		less := 0
		if x < p {
			less = 1
		}

		n += less
	}

	return n
}

// Sort sorts a few values by insertion.
func Sort(v []float32) {
	for i := 1; i < len(v); i++ {
		x := v[i]
		j := i
		for ; j > 0 && v[j-1] > x; j-- {
			v[j] = v[j-1]
		}

		v[j] = x
	}
}

// Median returns the median of v, which it reorders; NaN for none.
func Median(v []float32) float32 {
	n := len(v)
	if n == 0 {
		return NaN
	}

	hi := Kth(v, n/2)
	if n%2 == 1 {
		return hi
	}

	lo := v[0]
	for _, x := range v[1 : n/2] {
		lo = max(lo, x)
	}

	return (lo + hi) / 2
}

// MedianWithout returns the median of sorted values without one that is x, of all of them where
// none is; NaN for none.
func MedianWithout(sorted []float32, x float32) float32 {
	n := len(sorted)
	at, found := slices.BinarySearch(sorted, x)
	if found {
		n--
	}

	kth := func(k int) float32 {
		if found && k >= at {
			k++
		}

		return sorted[k]
	}
	switch {
	case n == 0:
		return NaN
	case n%2 == 1:
		return kth(n / 2)
	}

	return (kth(n/2-1) + kth(n/2)) / 2
}

// LowerMedian is the median, of an even number of values the lower one of the middle
// two; NaN for none. It reorders v.
func LowerMedian(v []float32) float32 {
	if len(v) == 0 {
		return NaN
	}

	return Kth(v, (len(v)-1)/2)
}

// Spread returns 1.4826 × the median absolute value of v (a robust standard
// deviation about zero); it overwrites v.
func Spread(v []float32) float32 {
	for i, x := range v {
		if x < 0 {
			v[i] = -x
		}
	}

	return 1.4826 * Median(v)
}

// qnFactor makes a normal distribution's Qn its standard deviation, by the number of
// values from 2.
var qnFactor = [...]float32{0.399, 0.994, 0.512, 0.844, 0.611, 0.857, 0.669}

// Qn returns Qn of two to eight values, their spread by a low quantile of
// their differences: no middle is needed, and nearly half of them may be wrong
// (Rousseeuw and Croux, Alternatives to the Median Absolute Deviation, 1993).
func Qn(v []float32) float32 {
	var pairs [28]float32
	n := 0
	for i, a := range v {
		for _, b := range v[:i] {
			pairs[n] = max(a-b, b-a)
			n++
		}
	}

	slices.Sort(pairs[:n])
	h := len(v)/2 + 1
	return 2.2219 * qnFactor[len(v)-2] * pairs[h*(h-1)/2-1]
}

// HodgesLehmann returns the median of all pairwise means of v: nearly as sharp as
// the mean, and a quarter of the values may be wrong. scratch is reused.
func HodgesLehmann(v []float32, scratch []float32) (float32, []float32) {
	scratch = scratch[:0]
	for i, a := range v {
		for _, b := range v[i:] {
			scratch = append(scratch, (a+b)/2)
		}
	}

	return Median(scratch), scratch
}

// TrimmedMean is the mean of a few values without the lowest and the
// highest: one pause in a block does not move it, and it is nearly as sharp as the
// mean. It reorders v.
func TrimmedMean(v []float32) float32 {
	n := len(v)
	if n == 0 {
		return NaN
	}

	Sort(v)
	cut := min(1, n/3)
	var s float32
	for _, x := range v[cut : n-cut] {
		s += x
	}

	return s / float32(n-2*cut)
}

// Tail is the chance of a t variate above z: heavier than Gaussian, as step times
// are, the more so the fewer independent steps there were.
func Tail(z, freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Survival(z)
}

// Compact appends the numbers of v to dst, without NaN.
func Compact(dst, v []float32) []float32 {
	for _, x := range v {
		if x == x {
			dst = append(dst, x)
		}
	}

	return dst
}

// Unknown returns n values none of which was measured.
func Unknown(n int) []float32 { return slices.Repeat([]float32{NaN}, n) }

// Logs fills out with the logarithms of v, NaN where there is none.
func Logs(v, out []float32) {
	for i, x := range v {
		out[i] = NaN
		if x > 0 {
			out[i] = float32(math.Log(float64(x)))
		}
	}
}

// Newest returns the last n of a list that grows at its end, or all of it.
func Newest[T any](v []T, n int) []T { return v[max(0, len(v)-n):] }

// Median64 returns the median of v without reordering it, NaN for none.
func Median64(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}

	s := slices.Clone(v)
	slices.Sort(s)
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}

	return (s[n/2-1] + s[n/2]) / 2
}

// MedianOf is the median of the numbers among what is given of each of the rows, NaN for none.
func MedianOf(rows []int32, of func(row int) float64) float64 {
	var v []float64
	for _, r := range rows {
		if x := of(int(r)); x == x {
			v = append(v, x)
		}
	}

	return Median64(v)
}

// Clip returns x, or the bound that it lies beyond.
func Clip(x, lo, hi float32) float32 { return min(max(x, lo), hi) }

// Sqrt is the square root.
func Sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// SpreadAbout is Spread about mid instead of zero; it overwrites v.
func SpreadAbout(v []float32, mid float32) float32 {
	for i := range v {
		v[i] -= mid
	}

	return Spread(v)
}

// MAD is 1.4826 × the median absolute deviation of v about its median; it overwrites v.
func MAD(v []float32) float32 { return SpreadAbout(v, Median(v)) }

// Finite returns x, or def where x is no number: JSON has none of them.
func Finite(x, def float64) float64 {
	if x != x || math.IsInf(x, 0) {
		return def
	}

	return x
}

// Share is part as a share of whole, from 0 to 1; 0 without a whole.
func Share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}

	return min(1, max(0, part/whole))
}

// SampleSize values tell the median of what all ranks have in common.
const SampleSize = 1024

// SampleMedian is the median of the numbers of v, of every few where there are many.
// buf is reused.
func SampleMedian(v, buf []float32) (mid float32, used []float32) {
	stride := len(v)/SampleSize + 1
	buf = buf[:0]
	for i := 0; i < len(v); i += stride {
		if x := v[i]; x == x {
			buf = append(buf, x)
		}
	}

	return Median(buf), buf
}
