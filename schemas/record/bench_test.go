package record

import (
	"bytes"
	"encoding/json"
	"testing"
)

// benchLines are a mix as a rank writes it: nine collectives to one step.
func benchLines() (lines [][]byte, bytes int64) {
	for i := range 1000 {
		r := New(Communication)
		r.Step, r.Start, r.Dur = int64(i/10), 1753000000000000001+int64(i)*1e6, 5400000+int64(i)
		r.Ring, r.Seq, r.Thread = 4, uint64(1000+i), 4000
		r.Op, r.Group, r.Count, r.Dtype, r.Bytes = "allreduce", "dp0", 4194304, "bf16", 8388608
		if i%3 == 0 {
			r.Op, r.Group, r.Exposed = "allgather", "10.20.0.1%eth0_60000_0_1753000000000000", 12345
		}

		if i%10 == 9 {
			r = New(Step)
			r.Step, r.Start, r.Dur = int64(i/10), 1753000000000000001, 950000000
			r.Ring, r.Seq = 3, uint64(i/10)
		}

		b := r.AppendLine(nil)
		lines = append(lines, b)
		bytes += int64(len(b))
	}

	return lines, bytes
}

func BenchmarkParse(b *testing.B) {
	lines, size := benchLines()
	accented := make([][]byte, len(lines))
	for i, l := range lines {
		accented[i] = bytes.Replace(l, []byte(`"dp0"`), []byte(`"größe \"0\""`), 1)
	}

	run := func(name string, lines [][]byte, parse func(*Parser, []byte) error) {
		b.Run(name, func(b *testing.B) {
			var p Parser
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				for _, l := range lines {
					if err := parse(&p, l); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
	ours := func(p *Parser, l []byte) error { _, err := p.Parse(l); return err }
	run("canonical", lines, ours)
	run("escapes", accented, ours)
	run("strict", lines, func(p *Parser, l []byte) error { return p.strictRecord(l) })
	run("encoding_json", lines, func(_ *Parser, l []byte) error {
		var r plain
		return json.Unmarshal(l, &r)
	})
}

// benchRecords are the records of benchLines.
func benchRecords(tb testing.TB) ([]Record, int64) {
	lines, bytes := benchLines()
	records := make([]Record, len(lines))
	var p Parser
	for i, l := range lines {
		if _, err := p.Parse(l); err != nil {
			tb.Fatal(err)
		}

		records[i] = p.Record
	}

	return records, bytes
}

// BenchmarkAppendLine is what the agent does for each record that it drains.
func BenchmarkAppendLine(b *testing.B) {
	records, bytes := benchRecords(b)
	var buf []byte
	b.SetBytes(bytes)
	b.ReportAllocs()
	for b.Loop() {
		for i := range records {
			buf = records[i].AppendLine(buf[:0])
		}
	}
}
