package detect

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

var nan32 = float32(math.NaN())

// kth partially sorts v so that v[k] is its k-th smallest value (Hoare's
// selection with a median-of-three pivot). v holds no NaN.
func kth(v []float32, k int) float32 {
	lo, hi := 0, len(v)-1
	for hi > lo {
		if hi-lo < 12 {
			insertion(v[lo : hi+1])
			break
		}

		mid := int(uint(lo+hi) >> 1)
		if v[mid] < v[lo] {
			v[mid], v[lo] = v[lo], v[mid]
		}

		if v[hi] < v[lo] {
			v[hi], v[lo] = v[lo], v[hi]
		}

		if v[hi] < v[mid] {
			v[hi], v[mid] = v[mid], v[hi]
		}

		p := v[mid]
		i, j := lo, hi
		for i <= j {
			for v[i] < p {
				i++
			}

			for v[j] > p {
				j--
			}

			if i <= j {
				v[i], v[j] = v[j], v[i]
				i++
				j--
			}
		}

		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return v[k]
		}
	}

	return v[k]
}

func insertion(v []float32) {
	for i := 1; i < len(v); i++ {
		x := v[i]
		j := i
		for ; j > 0 && v[j-1] > x; j-- {
			v[j] = v[j-1]
		}

		v[j] = x
	}
}

// median returns the median of v, which it reorders; NaN for none.
func median(v []float32) float32 {
	n := len(v)
	if n == 0 {
		return nan32
	}

	hi := kth(v, n/2)
	if n%2 == 1 {
		return hi
	}

	lo := v[0]
	for _, x := range v[1 : n/2] {
		lo = max(lo, x)
	}

	return (lo + hi) / 2
}

// lowerMedian is the median, of an even number of values the lower one of the middle
// two; NaN for none. It reorders v.
func lowerMedian(v []float32) float32 {
	if len(v) == 0 {
		return nan32
	}

	return kth(v, (len(v)-1)/2)
}

// spread returns 1.4826 × the median absolute value of v (a robust standard
// deviation about zero); it overwrites v.
func spread(v []float32) float32 {
	for i, x := range v {
		if x < 0 {
			v[i] = -x
		}
	}

	return 1.4826 * median(v)
}

// qnFactor makes a normal distribution's Qn its standard deviation, by the number of
// values from 2.
var qnFactor = [...]float32{0.399, 0.994, 0.512, 0.844, 0.611, 0.857, 0.669}

// differences returns Qn of two to eight values, their spread by a low quantile of
// their differences: no middle is needed, and nearly half of them may be wrong
// (Rousseeuw and Croux, Alternatives to the Median Absolute Deviation, 1993).
func differences(v []float32) float32 {
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

// hodgesLehmann returns the median of all pairwise means of v: nearly as sharp as
// the mean, and a quarter of the values may be wrong. scratch is reused.
func hodgesLehmann(v []float32, scratch []float32) (float32, []float32) {
	scratch = scratch[:0]
	for i, a := range v {
		for _, b := range v[i:] {
			scratch = append(scratch, (a+b)/2)
		}
	}

	return median(scratch), scratch
}

// middleMean is the mean of up to blockSteps values without the lowest and the
// highest: one pause in a block does not move it, and it is nearly as sharp as the
// mean. It reorders v.
func middleMean(v []float32) float32 {
	n := len(v)
	if n == 0 {
		return nan32
	}

	insertion(v)
	cut := min(1, n/3)
	var s float32
	for _, x := range v[cut : n-cut] {
		s += x
	}

	return s / float32(n-2*cut)
}

// tail is the chance of a t variate above z: heavier than Gaussian, as step times
// are, the more so the fewer independent steps there were.
func tail(z, freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Survival(z)
}

// compact appends the numbers of v to dst, without NaN.
func compact(dst, v []float32) []float32 {
	for _, x := range v {
		if x == x {
			dst = append(dst, x)
		}
	}

	return dst
}

// middle returns the median of v without reordering it, NaN for none.
func middle(v []float64) float64 {
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

func clip(x, lo, hi float32) float32 { return min(max(x, lo), hi) }

func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }
