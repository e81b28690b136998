package segment

import (
	"path/filepath"
	"testing"
)

func BenchmarkWriter_AppendRecord(b *testing.B) {
	w := open(b, rankDir(b), Options{})
	r := testRecord(1, 0)
	line := int64(len(r.AppendLine(nil)))
	b.SetBytes(line)
	b.ReportAllocs()
	for b.Loop() {
		r.Seq++
		if err := w.AppendRecord(r); err != nil {
			b.Fatal(err)
		}
	}

	must(b, w.Close())
}

func BenchmarkReader_Next(b *testing.B) {
	dir := rankDir(b)
	w := open(b, dir, Options{Now: at(100)})
	for seq := range uint64(50000) {
		must(b, w.AppendRecord(testRecord(1, seq)))
	}

	must(b, w.Close())
	for _, name := range []string{"plain", "zstd"} {
		path := filepath.Join(dir, "100")
		if name == "zstd" {
			to, err := Compress(path)
			must(b, err)
			path = to
		}

		b.Run(name, func(b *testing.B) {
			r := reader(b, path)
			var size int64
			for b.Loop() {
				must(b, r.SeekTo(0))
				for {
					if _, _, err := r.Next(); err != nil {
						break
					}
				}

				size = r.Offset()
			}

			b.SetBytes(size)
		})
	}
}

func TestWriter_AllocatesNothingForARecord(t *testing.T) {
	w := open(t, rankDir(t), Options{Limit: 1 << 30})
	r := testRecord(1, 0)
	write := func() {
		for range 3000 { // more than a buffer
			r.Seq++
			must(t, w.AppendRecord(r))
		}
	}
	write()
	if n := testing.AllocsPerRun(10, write); n > 0 {
		t.Errorf("%v allocations for 3000 records", n)
	}

	must(t, w.Close())
}
