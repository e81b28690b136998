package record

import "testing"

func TestAppendLine_AllocatesNothing(t *testing.T) {
	records, _ := benchRecords(t)
	var buf []byte
	if n := testing.AllocsPerRun(100, func() {
		for i := range records {
			buf = records[i].AppendLine(buf[:0])
		}
	}); n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}
