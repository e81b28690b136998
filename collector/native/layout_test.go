package native_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/record"
)

// TestSameBytes compares the files of a C recorder with those of a Go one that
// recorded the same: they may differ in who wrote them and when, in nothing else.
func TestSameBytes(t *testing.T) {
	const records = 8000 // five sixths are light: more than that ring holds
	run := ringtest.Shared(t)
	cmd := command(t, ringtest.Driver(t), run, "layout", "8000")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}

	c := files(t, run)
	io.WriteString(in, "\n")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}

	g := files(t, layout(t, records))
	for name, own := range map[string][][2]int{ // what is the writer's own: pid and start; times of the followed word
		"process": {{20, 56}, {136, 144}},
		// OS thread; the open range's checksum and start
		"ring-1": {{32, 40}, {1024, 1028}, {1040, 1048}},
	} {
		for _, f := range own {
			clear(c[name][f[0]:f[1]])
			clear(g[name][f[0]:f[1]])
		}

		if len(c[name]) != len(g[name]) {
			t.Errorf("%s: %d bytes from C, %d from Go", name, len(c[name]), len(g[name]))
		}

		if bytes.Equal(c[name], g[name]) {
			continue
		}

		for at := 0; at+16 <= min(len(c[name]), len(g[name])); at += 16 {
			if x, y := c[name][at:at+16], g[name][at:at+16]; !bytes.Equal(x, y) {
				t.Errorf("%s at %d: C % x, Go % x", name, at, x, y)
				break
			}
		}
	}
}

// files returns the content of the one folder's files.
func files(t *testing.T, run string) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	for _, name := range []string{"process", "ring-1"} {
		m, _ := filepath.Glob(filepath.Join(run, "*", name))
		if len(m) != 1 {
			t.Fatalf("%d files %s", len(m), name)
		}

		b, err := os.ReadFile(m[0])
		if err != nil {
			t.Fatal(err)
		}

		all[name] = b
	}

	return all
}

// layout records in Go what the driver's layout command records in C, and returns
// the run directory.
func layout(t *testing.T, records int) string {
	t.Helper()
	id, err := ring.Self()
	if err != nil {
		t.Fatal(err)
	}

	texts := ring.NewStrings()
	identity := texts.Intern(`{"job":"layout","rank":1,"world_size":2}`)
	text, group := texts.Intern("text"), texts.Intern("group")
	run := ringtest.Shared(t)
	p, err := ring.Create(run, id, texts, ring.AllOn)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(p.Close)
	p.SetIdentity(identity)
	w, err := p.NewWriter(1)
	if err != nil {
		t.Fatal(err)
	}

	var s ring.Slot
	name := func(k record.Kind, i int) {
		of := uint16(0)
		if i%2 == 1 {
			of = group
		}

		s.Name(k, uint8(i%17), int32(i%5-1), text, of, uint16(i), int64(i)<<33)
	}
	for i := range records {
		name(record.Kind(i%6), i)
		start, dur, step := 1753000000000000000+int64(i), 10*int64(i), int64(i%7-1)
		if i%3 == 0 {
			s.SetTime(1752000000000000000+int64(i), 0, step)
			s.SetDevice(start, dur, 7*int64(i))
		} else if s.SetTime(start, dur, step); i%4 == 1 {
			s.SetExposed(int64(i))
		}

		w.Publish(&s)
	}

	name(record.SaveCheckpoint, records-1)
	s.SetTime(1, 0, -1)
	w.Begin(&s)
	return run
}
