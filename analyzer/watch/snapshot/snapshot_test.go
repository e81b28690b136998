package snapshot

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"
)

type inner struct {
	a float32
	b []int64
}

type tree struct {
	cfg    inner
	shared *inner // into cfg
	twin   *inner
	same   *inner // twin
	next   *tree
	m      map[string]inner
	k      map[[2]int32]*inner
	list   []inner
	array  [3][]float32
	flags  []bool
	name   string
	u      uint64
	i      int
	none   []string
	empty  []string
}

func sample() *tree {
	t := &tree{cfg: inner{1.5, []int64{1, -2}}, m: map[string]inner{"x": {2, nil}}, k: map[[2]int32]*inner{}, list: []inner{{3, []int64{9}}},
		flags: []bool{true, false}, name: "n", u: 1 << 63, i: -7, empty: []string{}}
	t.array[1] = []float32{1, 2, 3}
	t.shared, t.twin = &t.cfg, &inner{4, nil}
	t.same, t.next = t.twin, t
	t.k[[2]int32{1, 2}] = t.twin
	return t
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	data, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	var got tree
	if err := Decode(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.shared != &got.cfg || got.same != got.twin || got.next != &got || got.k[[2]int32{1, 2}] != got.twin {
		t.Fatal("what pointed at one value points at several")
	}
	if got.none != nil || got.empty == nil || !reflect.DeepEqual(got.cfg, want.cfg) || !reflect.DeepEqual(got.m, want.m) ||
		!reflect.DeepEqual(got.list, want.list) || !reflect.DeepEqual(got.array, want.array) || got.u != want.u || got.i != want.i || got.name != "n" {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestReplace(t *testing.T) {
	s := sample()
	if n := Replace(s, inner{a: 9}); n < 3 || s.cfg.a != 9 || s.twin.a != 9 || s.list[0].a != 9 {
		t.Fatalf("Replace = %d, %+v", n, s)
	}
}

func TestRefuses(t *testing.T) {
	type bad struct{ F func() }
	if _, err := Encode(&bad{}); err == nil {
		t.Fatal("a function was written")
	}
	data, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	var other inner
	if err := Decode(data, &other); !errors.Is(err, ErrForeign) {
		t.Fatalf("Decode into another type: %v", err)
	}
}

// FuzzDecode gives bytes a good header and checksum, so that what follows is read.
func FuzzDecode(f *testing.F) {
	data, err := Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	head := len(magic) + 8
	f.Add(data[head : len(data)-4])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		var got tree
		if err := Decode(seal(data[:head], body), &got); err != nil && !errors.Is(err, ErrForeign) {
			t.Fatal(err)
		}
	})
}

func seal(head, body []byte) []byte {
	out := append(append([]byte{}, head...), body...)
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}
