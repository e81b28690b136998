package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// put writes a file into a fresh rank directory.
func put(t testing.TB, name string, data []byte) string {
	t.Helper()
	dir := rankDir(t)
	must(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, name)
	must(t, os.WriteFile(path, data, 0o644))
	return path
}

func reader(t testing.TB, path string) *Reader {
	t.Helper()
	r, err := OpenReader(path)
	must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// drain reads to the end and returns "offset:line" of each line.
func drain(t testing.TB, r *Reader) []string {
	t.Helper()
	var got []string
	for {
		line, offset, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}

		must(t, err)
		got = append(got, fmt.Sprintf("%d:%s", offset, line))
	}
}

func zst(t testing.TB, data []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	must(t, err)
	return z.EncodeAll(data, nil)
}

func TestReader_FollowsAGrowingFile(t *testing.T) {
	path := put(t, "1", []byte("a\nbb\ncc"))
	r := reader(t, path)
	if got := fmt.Sprint(drain(t, r)); got != "[0:a 2:bb]" || r.Torn() != 2 || r.Offset() != 5 {
		t.Fatalf("lines %s, torn %d, offset %d", got, r.Torn(), r.Offset())
	}

	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	for _, s := range []string{"c", "\n\ndd", "\n"} {
		_, err := f.WriteString(s)
		must(t, err)
	}

	if got := fmt.Sprint(drain(t, r)); got != "[5:ccc 9: 10:dd]" || r.Torn() != 0 {
		t.Fatalf("lines %s, torn %d", got, r.Torn())
	}
}

func TestReader_TellsAFileThatBecameShorter(t *testing.T) {
	path := put(t, "1", []byte("a\nbb\ncc"))
	r := reader(t, path)
	drain(t, r)
	must(t, os.Truncate(path, 3))
	if _, _, err := r.Next(); !errors.Is(err, ErrTruncated) {
		t.Errorf("Next()=%v, want ErrTruncated", err)
	}

	r = reader(t, path)
	must(t, r.SeekTo(500))
	if _, _, err := r.Next(); !errors.Is(err, ErrTruncated) {
		t.Errorf("Next() beyond the end=%v, want ErrTruncated", err)
	}
}

func TestReader_SkipsLongLines(t *testing.T) {
	long := strings.Repeat("x", maxLine+1)
	exact := strings.Repeat("y", maxLine)
	data := []byte("a\n" + long + "\n" + exact + "\n" + long + long + long + "\nb\n" + long)
	for _, name := range []string{"1", "1.zst"} {
		t.Run(name, func(t *testing.T) {
			content := data
			if name == "1.zst" {
				content = zst(t, data)
			}

			r := reader(t, put(t, name, content))
			var got []string
			for {
				line, offset, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}

				must(t, err)
				if data[offset] != line[0] || len(line) > maxLine {
					t.Fatalf("offset %d, %d bytes", offset, len(line))
				}

				got = append(got, fmt.Sprintf("%c%d", line[0], len(line)))
			}

			if fmt.Sprint(got) != fmt.Sprintf("[a1 y%d b1]", maxLine) {
				t.Errorf("lines: %v", got)
			}

			if lines, bytes := r.Skipped(); lines != 2 || bytes < 4*maxLine {
				t.Errorf("Skipped()=%d, %d", lines, bytes)
			}

			at := int64(len(data) - len(long))
			if r.Offset() != at || r.Torn() != int64(len(long)) {
				t.Errorf("Offset()=%d, want %d; Torn()=%d", r.Offset(), at, r.Torn())
			}
		})
	}
}

func TestReader_LeapsOverHoles(t *testing.T) {
	path := put(t, "1", []byte("a\n"))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	const tail = int64(4) << 40 // read at a GB/s that would take an hour
	if _, err := f.WriteAt([]byte("\nb\n"), tail); err != nil {
		t.Skipf("this file system takes no sparse file of 4 TiB: %v", err)
	}

	r := reader(t, path)
	got := drain(t, r)
	if len(got) != 2 || got[0] != "0:a" || got[1] != fmt.Sprintf("%d:b", tail+1) {
		t.Errorf("lines: %v", got)
	}

	if lines, bytes := r.Skipped(); lines != 1 || bytes != tail+1-2 {
		t.Errorf("Skipped()=%d, %d", lines, bytes)
	}
}

func TestReader_SeekTo(t *testing.T) {
	var data []byte
	var offsets []int64
	for i := range 5000 {
		offsets = append(offsets, int64(len(data)))
		data = fmt.Appendf(data, "line %d %s\n", i, strings.Repeat("z", i%90))
	}

	for _, name := range []string{"1", "1.zst"} {
		content := data
		if name == "1.zst" {
			content = zst(t, data)
		}

		r := reader(t, put(t, name, content))
		for _, i := range []int{4999, 0, 2500, 2501, 17} {
			must(t, r.SeekTo(offsets[i]))
			line, offset, err := r.Next()
			if err != nil || offset != offsets[i] || !bytes.HasPrefix(line, fmt.Appendf(nil, "line %d ", i)) {
				t.Errorf("%s: after SeekTo(%d): %q at %d, %v", name, offsets[i], line, offset, err)
			}
		}

		if name == "1.zst" {
			if err := r.SeekTo(int64(len(data)) + 1); !errors.Is(err, ErrTruncated) {
				t.Errorf("SeekTo beyond the end: %v", err)
			}
		}
	}
}

func TestReader_DamagedZstd(t *testing.T) {
	data := bytes.Repeat([]byte("a line of some length\n"), 1000)
	good := zst(t, data)
	for i := 0; i < len(good); i++ {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x55
		r := reader(t, put(t, "1.zst", bad))
		for n := 0; ; n++ {
			if _, _, err := r.Next(); err != nil {
				break
			}

			if n > 2000 {
				t.Fatalf("byte %d: no end of lines", i)
			}
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), false)
	f.Add([]byte(""), false)
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x00, 0x11, 0x00, 0x00, 'a', '\n', 0, 0, 0, 0}, true)
	f.Fuzz(func(t *testing.T, data []byte, compressed bool) {
		name := "1"
		if compressed {
			name = "1.zst"
		}

		r := reader(t, put(t, name, data))
		var sum int64
		for {
			line, offset, err := r.Next()
			if err != nil {
				break
			}

			if offset < sum || bytes.IndexByte(line, '\n') >= 0 || len(line) > maxLine {
				t.Fatalf("line %q at %d after %d", line, offset, sum)
			}

			if sum = offset + int64(len(line)) + 1; sum > 64<<20 {
				break // a bomb: bounded by maxInflated, not by the fuzzer's patience
			}
		}

		if !compressed && r.Offset()+r.Torn() != int64(len(data)) {
			t.Fatalf("Offset()=%d Torn()=%d of %d bytes", r.Offset(), r.Torn(), len(data))
		}
	})
}

func TestCompress(t *testing.T) {
	data := bytes.Repeat([]byte("a line of some length\n"), 1000)
	path := put(t, "5", data)
	old, err := os.Stat(path)
	must(t, err)
	dir := filepath.Dir(path)
	must(t, os.WriteFile(filepath.Join(dir, ".5.zst.tmp"), []byte("left by a crash"), 0o644))
	to, err := Compress(path)
	must(t, err)
	all, err := ListAll(dir)
	must(t, err)
	if len(all) != 1 || all[0].Name != "5.zst" || !all[0].Compressed || all[0].Number != 5 || all[0].Size >= int64(len(data))/10 {
		t.Fatalf("segments: %+v", all)
	}

	if d := all[0].ModTime.Sub(old.ModTime()).Abs(); d > 1000 {
		t.Errorf("modification time moved by %v", d)
	}

	if got := drain(t, reader(t, to)); len(got) != 1000 {
		t.Errorf("%d lines", len(got))
	}

	// A crash between rename and unlink leaves both: one is listed, a second
	// Compress ends the work.
	must(t, os.WriteFile(path, data, 0o644))
	if all, err = List(dir); err != nil || len(all) != 1 || all[0].Name != "5" {
		t.Fatalf("twins are listed as %+v, %v", all, err)
	}

	_, err = Compress(path)
	must(t, err)
	if all, err = ListAll(dir); err != nil || len(all) != 1 {
		t.Fatalf("segments: %+v, %v", all, err)
	}

	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left over: %v, %v", names, err)
	}

	for _, bad := range []string{to, filepath.Join(dir, "6"), filepath.Join(dir, "x")} {
		if _, err := Compress(bad); err == nil {
			t.Errorf("Compress(%s) works", bad)
		}
	}
}
