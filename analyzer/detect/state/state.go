// Package state is how the detector and its parts write down what they know between
// two steps: each lists its fields by name, and all of them travel as one gob stream.
//
// Invariant: what is read back has the lengths that the layout gives its lists, counts
// are counts, and memory is bounded by the bytes that are there. Caveat: a map must be
// there before it is filled, and what holds between fields is for their owner to check.
package state

import (
	"encoding/gob"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Fields names the parts of a value that make its state and points at them. A test
// holds that nothing else of the engine lives on from one step to the next.
type Fields map[string]any

// marked is a field of which Decode has to know more.
type marked struct {
	field         any
	grows, counts bool
}

// Grows marks a list whose length is part of the state. The length of every other
// list follows from the layout.
func Grows(list any) any { return marked{field: list, grows: true} }

// Counts marks numbers that indices are made of: from 0 to mostCount, or half of what
// their type holds.
func Counts(number any) any { return marked{field: number, counts: true} }

// mostCount is more than any job counts, and far from overflow.
const mostCount = 1 << 48

// Add makes the fields of a part those of the whole.
func (f Fields) Add(part string, of Fields) {
	for name, p := range of {
		f[part+"."+name] = p
	}
}

// Encode writes the name and the value of each field in the order of names.
func (f Fields) Encode(enc *gob.Encoder) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if err := errors.Join(enc.Encode(name), enc.Encode(Pointer(f[name]))); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}

	return nil
}

// Decode fills the fields with what Encode wrote of the same names.
func (f Fields) Decode(dec *gob.Decoder) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		var is string
		if err := dec.Decode(&is); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}

		if is != name {
			return fmt.Errorf("%s: it is %.40q", name, is)
		}

		if err := decodeField(dec, f[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}

	return nil
}

// decodeField fills a field of a new engine. Its maps are there already: gob makes a map
// as large as the stream says, and fills one that is there as far as there are bytes.
func decodeField(dec *gob.Decoder, field any) error {
	v := reflect.ValueOf(Pointer(field)).Elem()
	had := 0
	if v.Kind() == reflect.Slice {
		had = v.Len()
	}

	if err := dec.DecodeValue(v.Addr()); err != nil {
		return err
	}

	mark, _ := field.(marked)
	if !mark.grows && v.Kind() == reflect.Slice && v.Len() != had {
		return fmt.Errorf("%d values, want %d", v.Len(), had)
	}

	if mark.counts && !counted(v) {
		return errors.New("no count")
	}

	return nil
}

// Pointer is the field itself.
func Pointer(field any) any {
	if m, ok := field.(marked); ok {
		return m.field
	}

	return field
}

// counted reports whether a number, or each of a list, can be a count.
func counted(v reflect.Value) bool {
	if v.CanInt() {
		return v.Int() >= 0 && v.Int() <= min(mostCount, int64(1)<<(v.Type().Bits()-2))
	}

	for i := range v.Len() {
		if !counted(v.Index(i)) {
			return false
		}
	}

	return true
}
