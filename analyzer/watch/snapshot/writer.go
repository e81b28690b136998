package snapshot

import (
	"encoding/binary"
	"math"
	"reflect"
	"unsafe"
)

type writer struct {
	buf  []byte
	ids  map[place]uint64 // structs written so far, by number
	last uint64
}

func (w *writer) count(n uint64) { w.buf = binary.AppendUvarint(w.buf, n) }

func (w *writer) value(v reflect.Value) {
	t := v.Type()
	switch t.Kind() {
	case reflect.Struct:
		if v.CanAddr() {
			w.last++
			w.ids[place{unsafe.Pointer(v.UnsafeAddr()), t}] = w.last
		}
		for i := range t.NumField() {
			w.value(open(v.Field(i)))
		}
	case reflect.Array:
		for i := range v.Len() {
			w.value(open(v.Index(i)))
		}
	case reflect.String:
		w.count(uint64(v.Len()))
		w.buf = append(w.buf, v.String()...)
	case reflect.Slice:
		w.slice(v)
	case reflect.Map:
		w.entries(v)
	case reflect.Pointer:
		w.pointer(v)
	default:
		w.number(v)
	}
}

// slice writes 0 for nil, else length + 1 and the elements.
func (w *writer) slice(v reflect.Value) {
	if v.IsNil() {
		w.count(0)
		return
	}
	w.count(uint64(v.Len()) + 1)
	if fixed(v.Type().Elem()) {
		w.buf = append(w.buf, raw(v)...)
		return
	}
	for i := range v.Len() {
		w.value(open(v.Index(i)))
	}
}

// raw is the memory of a slice of numbers.
func raw(v reflect.Value) []byte {
	if v.Len() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
}

func (w *writer) entries(v reflect.Value) {
	if v.IsNil() {
		w.count(0)
		return
	}
	w.count(uint64(v.Len()) + 1)
	for it := v.MapRange(); it.Next(); {
		// Copies: a map's elements have no address.
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		k.Set(it.Key())
		e.Set(it.Value())
		w.value(k)
		w.value(e)
	}
}

// pointer writes 0 for nil, 1 and the value where it stands for the first time,
// else the value's number + 1.
func (w *writer) pointer(v reflect.Value) {
	if v.IsNil() {
		w.count(0)
		return
	}
	if id := w.ids[place{v.UnsafePointer(), v.Type().Elem()}]; id > 0 {
		w.count(id + 1)
		return
	}
	w.count(1)
	w.value(v.Elem())
}

func (w *writer) number(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		b := byte(0)
		if v.Bool() {
			b = 1
		}
		w.buf = append(w.buf, b)
	case reflect.Float32, reflect.Float64:
		w.buf = binary.LittleEndian.AppendUint64(w.buf, math.Float64bits(v.Float()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		w.count(v.Uint())
	default:
		w.buf = binary.AppendVarint(w.buf, v.Int())
	}
}
