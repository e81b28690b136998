package record

import (
	"fmt"
	"strings"
	"testing"
)

// TestWords: equal strings have one number wherever they lie, and a list that was
// handed out stays as it was.
func TestWords(t *testing.T) {
	var w Words
	if w.Add("") != 0 || len(w.List()) != 1 {
		t.Fatal("the empty string is not word 0")
	}

	early := w.List()
	want := map[string]Word{}
	for i := range 3000 {
		s := fmt.Sprintf("word %d", i%1000) // new memory each time
		n := w.Add(s)
		if k, ok := want[s]; ok && k != n || w.List()[n] != s {
			t.Fatalf("%s is %d, %s", s, n, w.List()[n])
		}

		want[s] = n
	}

	if len(w.List()) != 1001 || len(early) != 1 || w.Full() {
		t.Fatalf("%d words, the early list has %d", len(w.List()), len(early))
	}

	if w.Add(strings.Repeat("x", mostWordBytes)); !w.Full() {
		t.Fatal("not full after 4 MiB")
	}
}
