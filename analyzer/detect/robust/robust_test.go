package robust

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
)

// draw makes n values, some of them equal.
func draw(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
		if rng.IntN(4) == 0 {
			v[i] = float32(rng.IntN(3))
		}
	}

	return v
}

func wide(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}

	slices.Sort(out)
	return out
}

// TestSelection holds the kernels to what sorting and gonum say of the same values.
func TestSelection(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 1))
	for n := 1; n < 200; n++ {
		v := draw(rng, n)
		sorted := slices.Clone(v)
		slices.Sort(sorted)
		for _, k := range []int{0, n / 3, n / 2, n - 1} {
			if got := Kth(slices.Clone(v), k); got != sorted[k] {
				t.Fatalf("%d values: Kth(%d)=%v, want %v", n, k, got, sorted[k])
			}
		}

		if got, want := Median(slices.Clone(v)), (sorted[(n-1)/2]+sorted[n/2])/2; got != want {
			t.Fatalf("%d values: Median()=%v, want %v", n, got, want)
		}

		if got, want := LowerMedian(slices.Clone(v)), float32(stat.Quantile(0.5, stat.Empirical, wide(v), nil)); got != want {
			t.Fatalf("%d values: LowerMedian()=%v, want %v", n, got, want)
		}

		for _, x := range []float32{v[0], sorted[0], sorted[n-1], 1e9, NaN} {
			rest := slices.Clone(v)
			if i := slices.Index(rest, x); i >= 0 {
				rest = slices.Delete(rest, i, i+1)
			}

			if got, want := MedianWithout(sorted, x), Median(rest); got != want && (got == got || want == want) {
				t.Fatalf("%d values: MedianWithout(%v)=%v, want %v", n, x, got, want)
			}
		}

		if got, want := Median64(wide(v)), float64(sorted[(n-1)/2]+sorted[n/2])/2; math.Abs(got-want) > 1e-6 {
			t.Fatalf("%d values: Median64()=%v, want %v", n, got, want)
		}
	}
}

// TestSpreads wants each estimate of the spread near that of the normal values it is
// given, and no farther than twice it when a fifth of them are outliers.
func TestSpreads(t *testing.T) {
	const seed, sd = 8, 0.3
	rng := rand.New(rand.NewPCG(seed, 1))
	for name, estimate := range map[string]func([]float32) float32{
		"Spread": Spread, "MAD": MAD,
		"Qn": func(v []float32) float32 {
			sum := float32(0)
			for at := 0; at+8 <= len(v); at += 8 {
				sum += Qn(v[at : at+8])
			}

			return sum / float32(len(v)/8)
		},
	} {
		for _, outliers := range []int{0, 5} {
			v := make([]float32, 4000)
			for i := range v {
				v[i] = float32(sd * rng.NormFloat64())
				if outliers > 0 && i%outliers == 0 {
					v[i] = 5
				}
			}

			if got := estimate(v); got < 0.9*sd || got > 2*sd {
				t.Errorf("%s with outliers %v: %.3f, want about %.1f", name, outliers > 0, got, sd)
			}
		}
	}
}

func TestLocations(t *testing.T) {
	v := []float32{1, 2, 3, 4, 100}
	if got, _ := HodgesLehmann(v, nil); got != 3 {
		t.Errorf("HodgesLehmann()=%v, want 3", got)
	}

	if got := TrimmedMean(slices.Clone(v)); got != 3 {
		t.Errorf("TrimmedMean()=%v, want 3", got)
	}

	if got := Compact(nil, []float32{NaN, 1, NaN}); !slices.Equal(got, []float32{1}) {
		t.Errorf("Compact()=%v, want [1]", got)
	}

	if Tail(3, 5) < 10*Tail(3, 1000) {
		t.Errorf("Tail(3): %v of 5 degrees of freedom, %v of 1,000", Tail(3, 5), Tail(3, 1000))
	}
}

func TestNothing(t *testing.T) {
	for name, got := range map[string]float64{
		"Median": float64(Median(nil)), "MedianWithout": float64(MedianWithout([]float32{1}, 1)), "LowerMedian": float64(LowerMedian(nil)), "Median64": Median64(nil),
		"TrimmedMean": float64(TrimmedMean(nil)), "Spread": float64(Spread(nil)), "MAD": float64(MAD(nil)),
	} {
		if got == got {
			t.Errorf("%s of nothing is %v, want NaN", name, got)
		}
	}

	if got := Finite(math.NaN(), 2); got != 2 || Finite(math.Inf(1), 2) != 2 || Finite(1, 2) != 1 {
		t.Errorf("Finite(NaN, 2)=%v, want 2", got)
	}
}

// BenchmarkMedian is why the kernels are ours: the median of a window by selection
// beside gonum's of sorted float64.
func BenchmarkMedian(b *testing.B) {
	v := draw(rand.New(rand.NewPCG(9, 1)), 32)
	b.Run("selection", func(b *testing.B) {
		buf := make([]float32, len(v))
		for b.Loop() {
			copy(buf, v)
			_ = Median(buf)
		}
	})
	b.Run("gonum", func(b *testing.B) {
		buf := make([]float64, len(v))
		for b.Loop() {
			for i, x := range v {
				buf[i] = float64(x)
			}

			slices.Sort(buf)
			_ = stat.Quantile(0.5, stat.LinInterp, buf, nil)
		}
	})
}
