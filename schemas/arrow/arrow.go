// Package arrow says how laggard's tables look as Arrow: the fields of each, with
// types in the words of Arrow's format. It imports no Arrow: that is behind
// writer/arrow alone, because the Go library is frozen upstream.
//
// Invariant: fields are those of schemas/row, in order; none is null.
package arrow

import (
	"reflect"

	"github.com/laggard-dev/laggard/schemas/row"
)

// SchemaVersion stands in a schema's metadata under SchemaKey.
const (
	SchemaVersion = "1"
	SchemaKey     = "schema_version"
	TableKey      = "table"
)

// Type is the type of a field.
type Type string

// The types that tables use.
const (
	Utf8        Type = "utf8"
	Uint16      Type = "uint16"
	Uint32      Type = "uint32"
	Uint64      Type = "uint64"
	Int32       Type = "int32"
	Int64       Type = "int64"
	ListUtf8    Type = "list<utf8>"
	ListListU32 Type = "list<list<uint32>>"
)

// Field is one column.
type Field struct {
	Name string
	Type Type
}

var tables = map[string]reflect.Type{
	row.RanksTable:          reflect.TypeFor[row.Rank](),
	row.StepsTable:          reflect.TypeFor[row.Step](),
	row.CommunicationsTable: reflect.TypeFor[row.Communication](),
	row.RecordsTable:        reflect.TypeFor[row.Record](),
	row.VerdictsTable:       reflect.TypeFor[row.Verdict](),
	row.LedgerTable:         reflect.TypeFor[row.Ledger](),
}

// Fields returns the fields of a table, nil for one that is not laggard's.
func Fields(table string) []Field {
	t := tables[table]
	if t == nil {
		return nil
	}

	fields := make([]Field, t.NumField())
	for i := range fields {
		f := t.Field(i)
		fields[i] = Field{Name: f.Tag.Get("col"), Type: typeOf(f.Type)}
	}

	return fields
}

func typeOf(t reflect.Type) Type {
	switch {
	case t.Kind() == reflect.String:
		return Utf8
	case t.Kind() != reflect.Slice:
		return Type(t.Kind().String())
	case t.Elem().Kind() == reflect.String:
		return ListUtf8
	}

	return ListListU32
}
