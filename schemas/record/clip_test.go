package record

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClip(t *testing.T) {
	short := strings.Repeat("x", MaxWord)
	if got := Clip(short, MaxWord); got != short {
		t.Errorf("%d bytes became %d", len(short), len(got))
	}

	long := strings.Repeat("x", 64<<10)
	a, b := Clip(long+"a", MaxWord), Clip(long+"b", MaxWord)
	if len(a) != MaxWord || a == b || a[:1000] != long[:1000] || a != Clip(long+"a", MaxWord) {
		t.Errorf("%d bytes, %q and %q", len(a), a[1000:], b[1000:])
	}

	if wide := Clip(strings.Repeat("路", 1000), MaxWord); len(wide) > MaxWord || !utf8.ValidString(wide) {
		t.Errorf("%d bytes, valid %v", len(wide), utf8.ValidString(wide))
	}
}
