package segment

import (
	"path/filepath"
	"testing"
)

// TestTurn: of two incarnations that write one directory, only who has the newest
// segment appends to it.
func TestTurn(t *testing.T) {
	dir, turn := rankDir(t), new(Turn)
	writers := []*Writer{open(t, dir, Options{Turn: turn, Now: at(100)})}
	other, err := Open(dir, testMeta(2), Options{Turn: turn, Now: at(100)})
	must(t, err)
	writers = append(writers, other)
	sizes := map[string]int64{}
	var seq [2]uint64
	for _, who := range []int{0, 0, 1, 1, 0, 1, 0, 0} {
		w := writers[who]
		must(t, w.AppendRecord(testRecord(1, seq[who])))
		must(t, w.Flush())
		seq[who]++
		all, err := List(dir)
		must(t, err)
		for i, s := range all {
			if size, known := sizes[s.Name]; known && i < len(all)-1 && size != s.Size {
				t.Errorf("%s grew from %d to %d bytes and is not the newest", s.Name, size, s.Size)
			}

			sizes[s.Name] = s.Size
		}
	}

	if len(sizes) != 5 { // 0 0 | 1 1 | 0 | 1 | 0 0
		t.Errorf("%d segments, want 5", len(sizes))
	}

	must(t, writers[0].Close())
	again, err := Open(dir, testMeta(2), Options{Turn: turn, Now: at(100)})
	must(t, err)
	must(t, again.AppendRecord(testRecord(1, seq[1])))
	must(t, again.Flush())
	if want := filepath.Join(dir, "105"); again.path() != want {
		t.Errorf("the second one goes on in %s, want %s", again.path(), want)
	}

	must(t, writers[1].Close())
	must(t, again.Close())
}
