package source

import (
	"reflect"
	"strings"
	"unsafe"

	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
)

// column moves one column of a file or of a server's answer into rows of type T: set for
// integers, text for strings, list for lists, which only servers send so. missing is the
// value where the file is older than the column.
type column[T any] struct {
	name    string
	set     func(*T, int64)
	text    func(*T, string)
	list    func(*T, *native.Column, int)
	missing int64
}

const notRecorded = -1

var (
	// Made once: reflection is for the columns, not for the rows.
	stepColumns          = columnsOfSteps()
	communicationColumns = columnsOf[row.Communication](nil)
)

// columnsOfSteps are those of steps, of which an older file says that nothing was recorded.
func columnsOfSteps() []column[row.Step] {
	columns := columnsOf[row.Step](nil)
	for i := range columns {
		if name := columns[i].name; name == "tokens" || strings.HasSuffix(name, "_ns") && name != "start_ns" {
			columns[i].missing = notRecorded
		}
	}

	return columns
}

// columnsOf are the columns of a struct of schemas/row but the job. Lists of ranks are kept in groups.
func columnsOf[T any](groups members) []column[T] {
	var columns []column[T]
	of := reflect.TypeFor[T]()
	for i := range of.NumField() {
		f := of.Field(i)
		c := column[T]{name: f.Tag.Get("col")}
		switch f.Type.Kind() {
		case reflect.Uint16:
			c.set = integer[T, uint16](f.Offset)
		case reflect.Uint32:
			c.set = integer[T, uint32](f.Offset)
		case reflect.Uint64:
			c.set = integer[T, uint64](f.Offset)
		case reflect.Int32:
			c.set = integer[T, int32](f.Offset)
		case reflect.Int64:
			c.set = integer[T, int64](f.Offset)
		case reflect.String:
			c.text = func(r *T, v string) { *field[string](r, f.Offset) = v }
		default:
			c.list = func(r *T, c *native.Column, i int) { *field[[]string](r, f.Offset) = texts(c, i) }
			if f.Type == reflect.TypeFor[[][]uint32]() {
				c.list = func(r *T, c *native.Column, i int) { *field[[][]uint32](r, f.Offset) = groups.lists(c, i) }
			}
		}

		if c.name != "job" {
			columns = append(columns, c)
		}
	}

	return columns
}

// integer sets a field of that width: stores send all integers as int64.
func integer[T any, N uint16 | uint32 | uint64 | int32 | int64](offset uintptr) func(*T, int64) {
	return func(r *T, v int64) { *field[N](r, offset) = N(v) }
}

// field is the field of a row at an offset. It is as safe as the offset, which comes from the type
// itself, and saves a call of reflect for each value.
func field[F, T any](r *T, offset uintptr) *F { return (*F)(unsafe.Add(unsafe.Pointer(r), offset)) }

// assignJob names the job of rows, which is no column.
func assignJob[T any](rows []T, job string) {
	f, _ := reflect.TypeFor[T]().FieldByName("Job")
	for i := range rows {
		*field[string](&rows[i], f.Offset) = job
	}
}

// texts is a copy of a row's list of texts.
func texts(c *native.Column, row int) []string {
	from, to := c.List(row)
	return append(make([]string, 0, to-from), c.Of.Texts[from:to]...)
}
