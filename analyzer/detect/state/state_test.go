package state

import (
	"bytes"
	"encoding/gob"
	"slices"
	"testing"
)

// part is something with a state.
type part struct {
	ring  []float32
	past  []float64
	count int
	at    []int32
}

func (p *part) state() Fields {
	f := Fields{}
	f.Add("part", Fields{"ring": &p.ring, "past": Grows(&p.past), "count": Counts(&p.count), "at": Counts(&p.at)})
	return f
}

func TestFields_RoundTrip(t *testing.T) {
	a := part{ring: []float32{1, 2}, past: []float64{3}, count: 4, at: []int32{0, 5}}
	b := part{ring: make([]float32, 2), at: make([]int32, 2)}
	if err := b.read(a.written(t)); err != nil {
		t.Fatal(err)
	}

	if !slices.Equal(a.ring, b.ring) || !slices.Equal(a.past, b.past) || a.count != b.count || !slices.Equal(a.at, b.at) {
		t.Errorf("read %+v, want %+v", b, a)
	}
}

// TestFields_RefusesWhatCannotBe: a list of another length, numbers that count nothing,
// fields of another name, and bytes that end too soon.
func TestFields_RefusesWhatCannotBe(t *testing.T) {
	for name, p := range map[string]part{
		"another length": {ring: make([]float32, 3), at: make([]int32, 2)},
		"negative count": {ring: make([]float32, 2), count: -1, at: make([]int32, 2)},
		"huge count":     {ring: make([]float32, 2), count: mostCount + 1, at: make([]int32, 2)},
		"huge index":     {ring: make([]float32, 2), at: []int32{0, 1<<30 + 1}},
	} {
		b := part{ring: make([]float32, 2), at: make([]int32, 2)}
		if err := b.read(p.written(t)); err == nil {
			t.Errorf("%s: read as %+v", name, b)
		}
	}

	good := (&part{ring: make([]float32, 2), at: make([]int32, 2)}).written(t)
	for name, stream := range map[string][]byte{
		"cut":          good[:len(good)-1],
		"another name": bytes.Replace(good, []byte("part.past"), []byte("part.post"), 1),
	} {
		b := part{ring: make([]float32, 2), at: make([]int32, 2)}
		if err := b.read(stream); err == nil {
			t.Errorf("%s: read as %+v", name, b)
		}
	}
}

func (p *part) written(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.state().Encode(gob.NewEncoder(&b)); err != nil {
		t.Fatal(err)
	}

	return b.Bytes()
}

func (p *part) read(stream []byte) error {
	return p.state().Decode(gob.NewDecoder(bytes.NewReader(stream)))
}
