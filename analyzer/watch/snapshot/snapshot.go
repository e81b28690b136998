// Package snapshot writes a tree of Go values down, private fields and all, and
// makes the same tree again: the memory of a detector that must survive its
// process.
//
// Format: a header with a fingerprint of the root's type (the names, kinds and
// order of all fields that can be reached), the values in the order of their
// fields, and a CRC-32C. Slices of numbers are their bytes.
//
// Invariants: what points at one value still does so afterwards (pointers to
// shared values and into structs are references, cycles are fine); a snapshot of
// another build, whose types have changed, is refused, never misread; the bytes
// are hostile input: bounded by their length, no panic.
//
// Caveats: two slices over one array become two arrays, so they must not be
// written through each other; spare capacity is not kept; functions, channels,
// interfaces and unsafe pointers can't be written and are an error of Encode.
package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"reflect"
	"unsafe"
)

// ErrForeign is returned by Decode for bytes that are no snapshot of this type:
// another build's, or damaged ones. The owner then begins anew.
var ErrForeign = errors.New("not a snapshot of this build's types")

const magic = "laggard-snap/1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns a snapshot of what root points at.
func Encode[T any](root *T) ([]byte, error) {
	v := reflect.ValueOf(root).Elem()
	types, err := fingerprint(v.Type())
	if err != nil {
		return nil, err
	}
	w := &writer{ids: map[place]uint64{}}
	w.buf = append(w.buf, magic...)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, types)
	w.value(v)
	return binary.LittleEndian.AppendUint32(w.buf, crc32.Checksum(w.buf, castagnoli)), nil
}

// Decode makes root the value that was written.
func Decode[T any](data []byte, root *T) (err error) {
	v := reflect.ValueOf(root).Elem()
	types, err := fingerprint(v.Type())
	if err != nil {
		return err
	}
	head := len(magic) + 8
	if len(data) < head+4 || string(data[:len(magic)]) != magic ||
		binary.LittleEndian.Uint64(data[len(magic):]) != types {
		return ErrForeign
	}
	body := data[:len(data)-4]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(data[len(body):]) {
		return fmt.Errorf("%w: its checksum is wrong", ErrForeign)
	}
	defer func() {
		if p := recover(); p != nil {
			bad, ok := p.(malformed)
			if !ok {
				panic(p)
			}
			err = fmt.Errorf("%w: %s", ErrForeign, string(bad))
		}
	}()
	r := &reader{data: body[head:]}
	v.SetZero() // filled in place: the root itself may be pointed at
	r.value(v)
	if len(r.data) != 0 {
		return fmt.Errorf("%w: %d bytes too many", ErrForeign, len(r.data))
	}
	return nil
}

// malformed unwinds a reader.
type malformed string

// place is where a struct lives: a struct and its first field share an address,
// but not a type.
type place struct {
	at unsafe.Pointer
	of reflect.Type
}

// open makes a private field's value usable.
func open(v reflect.Value) reflect.Value {
	if v.CanSet() || !v.CanAddr() {
		return v
	}
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// fixed reports whether values of t are plain bytes without padding or pointers.
func fixed(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint, reflect.Float32, reflect.Float64:
		return true
	}
	return false
}

// fingerprint hashes the shape of a type, and refuses what can't be written.
func fingerprint(t reflect.Type) (uint64, error) {
	h := fnv.New64a()
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type, path string) error
	walk = func(t reflect.Type, path string) error {
		fmt.Fprintf(h, "%s %s;", t.Kind(), t.String())
		if seen[t] {
			return nil
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Struct:
			for i := range t.NumField() {
				f := t.Field(i)
				fmt.Fprintf(h, "%s:", f.Name)
				if err := walk(f.Type, path+"."+f.Name); err != nil {
					return err
				}
			}
			return nil
		case reflect.Array:
			fmt.Fprintf(h, "%d:", t.Len())
			return walk(t.Elem(), path)
		case reflect.Slice, reflect.Pointer:
			return walk(t.Elem(), path)
		case reflect.Map:
			if err := walk(t.Key(), path); err != nil {
				return err
			}
			return walk(t.Elem(), path)
		case reflect.String:
			return nil
		}
		if fixed(t) {
			return nil
		}
		return fmt.Errorf("snapshot %s: a %s can't be written", path, t.Kind())
	}
	err := walk(t, t.String())
	return h.Sum64(), err
}

// Replace sets every value of type T that is reachable from root (but not in a
// map) to with, and returns how often it did: how thresholds change in a running detector.
func Replace[T any](root any, with T) int {
	want := reflect.TypeFor[T]()
	seen := map[place]bool{}
	n := 0
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		t := v.Type()
		if t == want && v.CanSet() {
			v.Set(reflect.ValueOf(with))
			n++
			return
		}
		switch t.Kind() {
		case reflect.Struct:
			if v.CanAddr() {
				p := place{unsafe.Pointer(v.UnsafeAddr()), t}
				if seen[p] {
					return
				}
				seen[p] = true
			}
			for i := range t.NumField() {
				walk(open(v.Field(i)))
			}
		case reflect.Array, reflect.Slice:
			if fixed(t.Elem()) || t.Elem().Kind() == reflect.String {
				return
			}
			for i := range v.Len() {
				walk(open(v.Index(i)))
			}
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		}
	}
	walk(reflect.ValueOf(root))
	return n
}
