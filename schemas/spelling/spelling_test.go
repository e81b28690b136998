package spelling

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"--job", "--json", "on", "off", "SaveCheckpoint", "Step"}
	for word, want := range map[string]string{
		"--jbo":                   "--job",
		"--js":                    "--json", // begins with it
		"of":                      "off",
		" stpe ":                  "Step",
		"savecheckpoints":         "SaveCheckpoint",
		"zebra":                   "",
		"":                        "",
		strings.Repeat("x", 1e6):  "",
		"SaveCheckpoint" + "\x00": "SaveCheckpoint",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"stroe", "store", 2}, {"abc", "abc", 0}, {"flaw", "lawn", 2}, {"rank", "rank", 0},
	} {
		if got := Distance(c.a, c.b); got != c.want || Distance(c.b, c.a) != c.want {
			t.Errorf("Distance(%q, %q) = %d, %d back, want %d", c.a, c.b, got, Distance(c.b, c.a), c.want)
		}
	}
}
