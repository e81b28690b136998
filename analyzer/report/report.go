// Package report shows a verdict: as JSON (the contract), as a table for a
// terminal, as an explanation in words and numbers, and as one offline HTML file.
//
// Invariant: a report decides nothing. What it says of a node, a link or the job
// is the verdict's; what it draws are numbers and names of the frame, compared within roles.
// The same verdict and frame give the same bytes.
//
// Caveat: job, node and group names are hostile input. They are escaped in HTML,
// and control characters (terminal escapes among them) are shown, not sent, in
// text.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// JSON writes the contract of `laggard analyze -o json`: indented, lists never
// null, numbers finite, one newline at the end.
func JSON(w io.Writer, v *verdict.Verdict) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(complete(v)); err != nil {
		return fmt.Errorf("write verdict: %w", err)
	}

	return nil
}

// complete returns a copy of v whose lists are not nil and whose numbers JSON
// can hold (no NaN, no infinity): who reads the contract need not expect null. What v
// shares with the detector stays as it is.
func complete(v *verdict.Verdict) *verdict.Verdict {
	fill(reflect.ValueOf(&v).Elem())
	return v
}

// fill makes what v holds a copy of itself that is as complete promises. A list that JSON leaves out where it is
// empty may be nil.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c := reflect.New(v.Type().Elem())
			c.Elem().Set(v.Elem())
			v.Set(c)
			fill(c.Elem())
		}
	case reflect.Struct:
		for f, x := range v.Fields() {
			if x.Kind() != reflect.Slice || x.Len() > 0 || !strings.HasSuffix(f.Tag.Get("json"), ",omitempty") {
				fill(x)
			}
		}
	case reflect.Slice:
		list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(list, v)
		v.Set(list)
		for i := range list.Len() {
			fill(list.Index(i))
		}
	case reflect.Float64:
		v.SetFloat(finite(v.Float()))
	}
}

// finite returns x, 0 for NaN, and the largest finite number for an infinity.
func finite(x float64) float64 {
	switch {
	case math.IsNaN(x):
		return 0
	case math.IsInf(x, 1):
		return math.MaxFloat64
	case math.IsInf(x, -1):
		return -math.MaxFloat64
	}

	return x
}

// plain returns s with what a terminal might act on made visible: control and
// format characters (also the ones that turn the direction of text) as \u….
func plain(s string) string {
	odd := func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar
	}
	if strings.IndexFunc(s, odd) < 0 {
		return s
	}

	var b strings.Builder
	for _, r := range s {
		if odd(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}

	return b.String()
}

// percent returns a share as "49%", with a digit more below 10 %. A share that is not 0 never
// reads as 0.
func percent(share float64) string {
	p := 100 * finite(share)
	switch {
	case p != 0 && math.Abs(p) < 0.1:
		return "<0.1%"
	case math.Abs(p) < 9.95:
		return strings.TrimSuffix(strconv.FormatFloat(p, 'f', 1, 64), ".0") + "%"
	}

	return strconv.FormatFloat(p, 'f', 0, 64) + "%"
}

// times returns a ratio as "2.36×".
func times(ratio float64) string {
	digits := 2
	if math.Abs(ratio) >= 99.5 {
		digits = 0
	}

	return strconv.FormatFloat(finite(ratio), 'f', digits, 64) + "×"
}

// seconds returns a duration with three significant digits: "17.4 s", "412 ms".
func seconds(s float64) string {
	s = finite(s)
	unit := "s"
	switch a := math.Abs(s); {
	case a == 0:
		return "0 s"
	case a < 0.9995e-3:
		s, unit = s*1e6, "µs"
	case a < 0.9995:
		s, unit = s*1e3, "ms"
	case a >= 3600:
		s, unit = s/3600, "h"
	case a >= 600:
		s, unit = s/60, "min"
	}

	digits := 2
	switch a := math.Abs(s); {
	case a >= 99.95:
		digits = 0
	case a >= 9.995:
		digits = 1
	}

	return strconv.FormatFloat(s, 'f', digits, 64) + " " + unit
}

// rankList returns ranks, which are in order, as "0, 4–7, 12", cut after most parts. Two
// neighbours stay two numbers.
func rankList(ranks []int, most int) string {
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}

		switch {
		case j > i+1:
			parts = append(parts, fmt.Sprintf("%d–%d", ranks[i], ranks[j]))
		default:
			j = i
			parts = append(parts, strconv.Itoa(ranks[i]))
		}

		i = j + 1
	}

	if len(parts) > most {
		left := len(parts) - most
		return strings.Join(parts[:most], ", ") + fmt.Sprintf(" and %d more", left)
	}

	return strings.Join(parts, ", ")
}

// names returns "a", "a and b", "a, b and c", cut after most names.
func names(list []string, most int) string {
	words := make([]string, 0, len(list))
	for _, s := range list {
		words = append(words, plain(s))
	}

	if len(words) > most {
		return strings.Join(words[:most], ", ") + fmt.Sprintf(" and %d more", len(words)-most)
	}

	if len(words) < 2 {
		return strings.Join(words, "")
	}

	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// count returns "1 rank", "3 ranks".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return grouped(n) + " " + noun + "s"
}

// grouped returns an integer in groups of three digits: "8,192".
func grouped(n int) string {
	s := strconv.Itoa(n)
	if n < 0 {
		return "-" + grouped(-n)
	}

	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}

	return s
}
