package snapshot

import (
	"encoding/binary"
	"math"
	"reflect"
)

type reader struct {
	data  []byte
	known []reflect.Value // structs, by number - 1
}

func (r *reader) count() uint64 {
	n, k := binary.Uvarint(r.data)
	if k <= 0 {
		panic(malformed("it ends early"))
	}
	r.data = r.data[k:]
	return n
}

// take returns the next n bytes.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.data)) {
		panic(malformed("it ends early"))
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *reader) value(v reflect.Value) {
	t := v.Type()
	switch t.Kind() {
	case reflect.Struct:
		if v.CanAddr() {
			r.known = append(r.known, v)
		}
		for i := range t.NumField() {
			r.value(open(v.Field(i)))
		}
	case reflect.Array:
		for i := range v.Len() {
			r.value(open(v.Index(i)))
		}
	case reflect.String:
		v.SetString(string(r.take(r.count())))
	case reflect.Slice:
		r.slice(v)
	case reflect.Map:
		r.entries(v)
	case reflect.Pointer:
		r.pointer(v)
	default:
		r.number(v)
	}
}

func (r *reader) slice(v reflect.Value) {
	n := r.count()
	if n == 0 {
		return
	}
	n--
	e := v.Type().Elem()
	if fixed(e) {
		size := uint64(e.Size())
		if n > uint64(len(r.data))/size {
			panic(malformed("it ends early"))
		}
		v.Set(reflect.MakeSlice(v.Type(), int(n), int(n)))
		copy(raw(v), r.take(n*size))
		return
	}
	if e.Size() == 0 || n > uint64(len(r.data)) { // each element takes a byte at least
		if n > 0 {
			panic(malformed("a length that can't be"))
		}
	}
	v.Set(reflect.MakeSlice(v.Type(), int(n), int(n)))
	for i := range int(n) {
		r.value(open(v.Index(i)))
	}
}

func (r *reader) entries(v reflect.Value) {
	n := r.count()
	if n == 0 {
		return
	}
	if n--; n > uint64(len(r.data)) {
		panic(malformed("a length that can't be"))
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), int(n)))
	for range n {
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		r.value(k)
		r.value(e)
		v.SetMapIndex(k, e)
	}
}

func (r *reader) pointer(v reflect.Value) {
	switch n := r.count(); n {
	case 0:
	case 1:
		p := reflect.New(v.Type().Elem())
		v.Set(p)
		r.value(p.Elem())
	default:
		if n-2 >= uint64(len(r.known)) || r.known[n-2].Type() != v.Type().Elem() {
			panic(malformed("a reference to nothing"))
		}
		v.Set(r.known[n-2].Addr())
	}
}

func (r *reader) number(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.take(1)[0] != 0)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(math.Float64frombits(binary.LittleEndian.Uint64(r.take(8))))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		v.SetUint(r.count())
	default:
		n, k := binary.Varint(r.data)
		if k <= 0 {
			panic(malformed("it ends early"))
		}
		r.data = r.data[k:]
		v.SetInt(n)
	}
}
