package report

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
)

// pageBudget bounds the encoded matrices of a page in bytes of text: with all the
// rest the file stays well under 5 MB.
const pageBudget = 3 << 20

// firstCells is how many cells all layers together begin with; it is lowered
// until the page fits its budget.
const firstCells = 6 << 20

// bin is the i-th of count ranges of n steps, as indexes: a column of the page's matrices, a point of a line.
func bin(i, count, n int) (from, to int) { return i * n / count, (i + 1) * n / count }

// encodeLayers encodes all layers with the same number of columns, so many that they fit the budget, and
// returns that number. How well a layer compresses is not known before, so each try has a third fewer cells
// than the one before.
func encodeLayers(p *picture, layers []layer) (columns int, err error) {
	if len(layers) == 0 {
		return 0, nil
	}

	for cells := firstCells; ; cells = cells * 2 / 3 {
		columns, size := max(1, min(len(p.Columns), cells/(len(p.drawn)*len(layers)))), 0
		for i := range layers {
			if err := layers[i].encode(columns, p); err != nil {
				return 0, err
			}

			size += len(layers[i].Data)
		}

		if size <= pageBudget || columns == 1 {
			return columns, nil
		}
	}
}

// encode makes one byte a cell: the code of the mean of the steps in its bin, deflated.
func (l *layer) encode(columns int, p *picture) error {
	l.Levels = shareLevels
	if l.Ratio {
		l.Levels = ratioLevels
	}

	var cells []byte
	for _, r := range p.drawn {
		for i := range columns {
			from, to := bin(i, columns, len(p.Columns))
			x := mean(l.values[r.row][from:to])
			if l.Ratio {
				x = math.Log(x) // a ratio is above 0, or NaN
			}

			cells = append(cells, quantise(x, l.Levels))
		}
	}

	var buf bytes.Buffer
	z, err := flate.NewWriter(&buf, 7) // raw deflate, which browsers inflate (DecompressionStream)
	if err == nil {
		_, err = z.Write(cells)
		err = errors.Join(err, z.Close())
	}

	if err != nil {
		return fmt.Errorf("encode layer %s: %w", l.Name, err)
	}

	l.Data = base64.StdEncoding.EncodeToString(buf.Bytes())
	return nil
}

// mean returns the mean of the values that are measured; NaN for none.
func mean(values []float32) float64 {
	sum, n := 0.0, 0
	for _, v := range values {
		if v == v {
			sum, n = sum+float64(v), n+1
		}
	}

	if n == 0 {
		return math.NaN()
	}

	return sum / float64(n)
}

// Levels of ratios are symmetric around code 128: steps of 0.5 % near 1, then
// growing by 4 % a code, so that 127 codes reach beyond a factor of 20.
const (
	middle    = 128   // the code of 1, "equal to peers"
	fineStep  = 0.005 // between two codes near the middle, in natural logarithms
	fineCodes = 40    // on either side of the middle: up to a factor of 1.22
	growth    = 1.04  // of the step from each code to the next one beyond
)

// ratioLevels are the logarithms that codes of ratios stand for, from code 1 on.
var ratioLevels = func() []float64 {
	levels := make([]float64, 256)
	x, step := 0.0, fineStep
	for k := 1; k <= 127; k++ {
		if k > fineCodes {
			step *= growth
		}

		x += step
		levels[middle+k] = round(x, 5)
		levels[middle-k] = -round(x, 5)
	}

	return levels
}()

// shareLevels are the shares that codes stand for, from code 1 on: 254 equal steps.
var shareLevels = func() []float64 {
	levels := make([]float64, 256)
	for k := 1; k < 256; k++ {
		levels[k] = round(float64(k-1)/254, 5)
	}

	return levels
}()

// quantise returns the code whose level is the nearest to x, 0 for NaN.
func quantise(x float64, levels []float64) byte {
	if math.IsNaN(x) {
		return 0
	}

	k, _ := slices.BinarySearch(levels[1:], x)
	k = min(k+1, len(levels)-1) // the first code whose level is at least x
	if k > 1 && x-levels[k-1] < levels[k]-x {
		k--
	}

	return byte(k)
}

// round returns x with n decimals.
func round(x float64, n int) float64 {
	p := math.Pow(10, float64(n))
	return math.Round(x*p) / p
}

// significant returns x with about n significant digits: what JSON needs to hold.
func significant(x float64, n int) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}

	return round(x, max(0, n-1-int(math.Floor(math.Log10(math.Abs(x))))))
}
