package profiles

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// eventsOf scans a trace, a byte at a time where slow.
func eventsOf(text string, slow bool) (names []string, beside map[string]string, err error) {
	var r io.Reader = strings.NewReader(text)
	if slow {
		r = iotest.OneByteReader(r)
	}

	beside = map[string]string{}
	err = scanTrace(r, func(k, v []byte) { beside[string(k)] = string(v) }, func(e *event) {
		names = append(names, string(e.name)+"|"+string(e.args))
	})
	return names, beside, err
}

func TestTraceForms(t *testing.T) {
	const events = `[ {"name":"a","args":{"x":[1,{"y":"]}\""}]}} ,{"name":"b\\","ts":1.5},
 {} ]`
	for _, text := range []string{events, `{"v":1,"traceEvents":` + events + `}`, "\n{ \"traceEvents\" : " + events + " , \"v\" : 1 }"} {
		for _, slow := range []bool{false, true} {
			names, beside, err := eventsOf(text, slow)
			if err != nil || strings.Join(names, " ") != `a|{"x":[1,{"y":"]}\""}]} b\\| |` {
				t.Errorf("%s: %q, %v", text, names, err)
			}

			if v := beside["v"]; text[0] == '{' && v != "1" {
				t.Errorf("%s: beside %q", text, beside)
			}
		}

		for n := range len(text) - 1 {
			if _, _, err := eventsOf(text[:n], false); n > 0 && err == nil && json.Valid([]byte(text[:n])) == false {
				t.Errorf("%q is cut, and no error", text[:n])
			}
		}
	}
}

func TestMicros(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1000, "1694128201426674": 1694128201426674000, "4458676416788.066": 4458676416788066, "1712195495520854.8": 1712195495520854800,
		"1.5e3": 1500000, "-2.5": -2500, "0.0019": 1, "x": 0, "": 0, "1e300": 0, "99999999999999999999": 0,
	} {
		if got := micros([]byte(text)); got != want {
			t.Errorf("%q is %d ns, want %d", text, got, want)
		}
	}
}

// Whatever the bytes, the scanner ends and hands over only what stands in them; what the standard
// library takes for a trace it takes as well, with the same names.
func FuzzTrace(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(`{"traceEvents":[{"name":"a"}],"x":[1,2]}`))
	f.Add([]byte(`{"traceEvents":[{"name":"\u0041","args":{"a":"\"}"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var names []string
		err := scanTrace(bytes.NewReader(text), func(_, _ []byte) {}, func(e *event) { names = append(names, string(e.name)) })
		var list []struct {
			Name *string `json:"name"`
		}
		d := json.NewDecoder(bytes.NewReader(text))
		if d.Decode(&list) != nil || !bytes.HasPrefix(bytes.TrimLeft(text, " \n\r\t"), []byte("[")) {
			return
		}

		if err != nil || len(names) != len(list) {
			t.Fatalf("%d events of %d: %v", len(names), len(list), err)
		}
	})
}

// An event that is larger than any profiler's ends the reading, and no memory.
func TestHugeEvent(t *testing.T) {
	r := io.MultiReader(strings.NewReader(`[{"name":"`), &zeros{left: 64 << 20})
	err := scanTrace(r, func(_, _ []byte) {}, func(*event) {})
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("%v", err)
	}

	if errors.Is(err, errCut) {
		t.Error("it is called cut")
	}
}

// zeros is a reader of so many bytes.
type zeros struct{ left int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}

	n := min(len(p), z.left)
	for i := range p[:n] {
		p[i] = '0'
	}

	z.left -= n
	return n, nil
}

// BenchmarkTrace is a real trace, scanned by us and by the standard library.
func BenchmarkTrace(b *testing.B) {
	f, err := openFolder("testdata/dlrm-8rank/worker0_step_12.1694128201545.pt.trace.json.gz")
	if err != nil {
		b.Fatal(err)
	}

	r, err := f.files[0].Open()
	if err != nil {
		b.Fatal(err)
	}

	text, err := io.ReadAll(r)
	if err != nil {
		b.Fatal(err)
	}

	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if err := scanTrace(bytes.NewReader(text), func(_, _ []byte) {}, func(*event) {}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			d := json.NewDecoder(bytes.NewReader(text))
			for {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
