package report

import (
	"io"
	"testing"
)

// BenchmarkHTML renders 8,192 ranks × 2,000 steps.
func BenchmarkHTML(b *testing.B) {
	s := samples["8192"]
	s.steps = 2000
	v, f := s.verdict(), s.frame()
	b.ReportAllocs()
	for b.Loop() {
		if err := HTML(io.Discard, v, f, nil, ""); err != nil {
			b.Fatal(err)
		}
	}
}
