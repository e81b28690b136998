package report

import (
	"io"
	"testing"
)

// BenchmarkHTML renders 8,192 ranks × 2,000 steps.
func BenchmarkHTML(b *testing.B) {
	s := samples["8192"]
	s.steps = 2000
	v, p := s.verdict(), s.picture()
	b.ReportAllocs()
	for b.Loop() {
		if err := HTML(io.Discard, v, p, ""); err != nil {
			b.Fatal(err)
		}
	}
}
