package row

import (
	"reflect"
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/schemas/record"
)

// TestRawColumns: the packed form has the columns of Record, in no more memory than they
// need, and gives every field back.
func TestRawColumns(t *testing.T) {
	whole, raw := reflect.TypeFor[Record](), reflect.TypeFor[Raw]()
	if whole.NumField() != raw.NumField() {
		t.Fatalf("%d fields, want %d", raw.NumField(), whole.NumField())
	}

	fields := uintptr(0)
	for i := range raw.NumField() {
		fields += raw.Field(i).Type.Size()
	}

	if size := raw.Size(); size-fields >= 8 {
		t.Errorf("a row of %d bytes has %d in its fields", size, fields)
	}

	var full Record
	v := reflect.ValueOf(&full).Elem()
	for i := range whole.NumField() {
		a := whole.Field(i)
		b, _ := raw.FieldByName(a.Name)
		want := a.Type
		if want.Kind() == reflect.String {
			want = reflect.TypeFor[record.Word]()
		}

		if column := a.Tag.Get("col"); column != b.Tag.Get("col") || b.Type != want {
			t.Errorf("field %s is %s %s, want %s %s", a.Name, b.Type, b.Tag, want, column)
		}

		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(a.Name)
		case reflect.Int64, reflect.Int32:
			f.SetInt(int64(-i))
		default:
			f.SetUint(uint64(i))
		}
	}

	packed := Pack(full)
	if got := packed.Record(0); got != full {
		t.Errorf("packed and unpacked: %+v, want %+v", got, full)
	}

	appended := Pack(Record{Job: "something else"})
	appended.Append(&packed)
	if got := appended.AppendTo(nil); len(got) != 2 || got[1] != full || got[0] != (Record{Job: "something else"}) {
		t.Errorf("appended: %+v, want %+v", got, full)
	}

	var other record.Words
	other.Add("something else")
	if packed.Renumber(&other); packed.Record(0) != full || len(packed.Words) != len(other.List()) {
		t.Errorf("renumbered: %+v, want %+v", packed.Record(0), full)
	}
}

// TestRenumber: words keep their meaning, whether their numbers are the same in the
// other list, others, or both.
func TestRenumber(t *testing.T) {
	rows := func(words ...string) (Raws, []Record) {
		var all []Record
		for i := range 40 {
			all = append(all, Record{Job: "j", Kind: words[i%len(words)], Group: words[i*7%len(words)], Offset: uint64(i)})
		}

		return Pack(all...), all
	}
	var w record.Words
	for _, words := range [][]string{{"a", "b"}, {"a", "b"}, {"b", "a"}, {"a", "c"}, {"a", "b", "c"}} {
		r, want := rows(words...)
		r.Renumber(&w)
		if got := r.AppendTo(nil); !slices.Equal(got, want) {
			t.Errorf("%q: rows %+v, want %+v", words, got, want)
		}
	}
}
