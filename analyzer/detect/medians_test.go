package detect

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/detect/robust"
	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
)

// BenchmarkMedians is the part of P15 that numpy can do as well: of 1,000 steps of
// 10,000 ranks in 40 roles, the logarithm, each role's median and noise in each step,
// and each rank's median over the last 32 steps, every eight. Both sides do the same
// on the same matrices, in turn; LAGGARD_NUMPY is a Python with numpy ("" = python3).
func BenchmarkMedians(b *testing.B) {
	const steps, ranks, roles = 1000, 10000, 40
	python := os.Getenv("LAGGARD_NUMPY")
	if python == "" {
		python = "python3"
	}

	numpy := exec.Command(python, "-c", "import numpy").Run() == nil
	if !numpy {
		b.Logf("NOTE: %s has no numpy: nothing to compare with", python)
	}

	args := []string{"../../benchmarks/fleet/medians.py", strconv.Itoa(steps), strconv.Itoa(roles), "1"}
	random := rand.New(rand.NewPCG(1, 1))
	var matrices [signals][]float32
	for s := range matrices {
		m := make([]float32, steps*ranks)
		raw := make([]byte, 0, 4*len(m))
		for i := range m {
			m[i] = float32(0.3 * (1 + 0.01*random.NormFloat64()))
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(m[i]))
		}

		path := filepath.Join(b.TempDir(), signalMetric[s])
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			b.Fatal(err)
		}

		matrices[s], args = m, append(args, path)
	}

	var ours, ratios []float64
	for b.Loop() {
		began := time.Now()
		var both sync.WaitGroup
		for s := range matrices {
			for half := range 2 { // by roles: three signals don't fill two cores evenly
				both.Go(func() { medians(matrices[s], steps, ranks, ranks/roles, half*ranks/2, (half+1)*ranks/2) })
			}
		}

		both.Wait()
		t := time.Since(began).Seconds()
		ours = append(ours, t)
		if !numpy {
			continue
		}

		out, err := exec.Command(python, args...).Output()
		if err != nil {
			b.Fatal(err)
		}

		theirs, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}

		ratios = append(ratios, theirs/t)
	}

	slices.Sort(ours)
	b.ReportMetric(ours[len(ours)/2], "ours-s")
	if len(ratios) > 0 {
		slices.Sort(ratios)
		b.ReportMetric(ratios[len(ratios)/2], "times-numpy")
		b.Logf("%.2f (%.2f to %.2f) times faster than numpy", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	}
}

// medians is BenchmarkMedians for some ranks of one signal, in roles of per ranks.
func medians(x []float32, steps, ranks, per, first, last int) {
	width := last - first
	e := make([]float32, steps*width)
	buf := make([]float32, per)
	for s := range steps {
		for at := 0; at < width; at += per {
			res := e[s*width+at:][:per]
			for i, v := range x[s*ranks+first+at:][:per] {
				res[i] = float32(math.Log(float64(v)))
			}

			copy(buf, res)
			mid := robust.Median(buf)
			for i := range res {
				res[i] -= mid
			}

			copy(buf, res)
			_ = robust.Spread(buf)
		}
	}

	const tile = 64 // ranks whose last steps are gathered together: a cache line holds 16
	cells := make([]float32, tile*threshold.Window)
	for at := threshold.Window; at <= steps; at += threshold.EvaluateEvery {
		for from := 0; from < width; from += tile {
			n := min(tile, width-from)
			for k := range threshold.Window {
				for i, v := range e[(at-threshold.Window+k)*width+from:][:n] {
					cells[i*threshold.Window+k] = v
				}
			}

			for i := range n {
				_ = robust.Median(cells[i*threshold.Window : (i+1)*threshold.Window])
			}
		}
	}
}
