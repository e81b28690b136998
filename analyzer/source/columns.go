package source

import (
	"errors"
	"reflect"
	"strings"
	"unsafe"

	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
)

// column moves one column of a file or of a server's answer, which fits, into as many rows of type T. It holds
// strings or integers, in lists, or in lists of lists, which only servers send. missing is the value where
// the file is older than the column.
type column[T any] struct {
	name    string
	text    bool
	lists   int // within one another
	move    func([]T, *native.Column)
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
			c.move = integers[T, uint16](f.Offset)
		case reflect.Uint32:
			c.move = integers[T, uint32](f.Offset)
		case reflect.Uint64:
			c.move = integers[T, uint64](f.Offset)
		case reflect.Int32:
			c.move = integers[T, int32](f.Offset)
		case reflect.Int64:
			c.move = integers[T, int64](f.Offset)
		case reflect.String:
			c.text = true
			c.move = each[T](f.Offset, func(from *native.Column, i int) string { return from.Texts[i] })
		default:
			c.text, c.lists, c.move = true, 1, each[T](f.Offset, texts)
			if f.Type == reflect.TypeFor[[][]uint32]() {
				c.text, c.lists, c.move = false, 2, each[T](f.Offset, groups.lists)
			}
		}

		if c.name != "job" {
			columns = append(columns, c)
		}
	}

	return columns
}

// errType is that a store has a column of another type than laggard's.
var errType = errors.New("is of another type than laggard's")

// fits reports whether a column that was read holds so many rows of what this one takes.
func (c *column[T]) fits(from *native.Column, rows int) bool {
	for range c.lists {
		if from == nil || len(from.Ends) != rows {
			return false
		}

		if rows == 0 {
			return true
		}

		from, rows = from.Of, int(from.Ends[rows-1])
	}

	if from == nil {
		return false
	}

	if c.text {
		return len(from.Texts) == rows
	}

	return len(from.Numbers) == rows
}

// integers sets a field of that width: stores send all integers as int64.
func integers[T any, N uint16 | uint32 | uint64 | int32 | int64](offset uintptr) func([]T, *native.Column) {
	return func(rows []T, from *native.Column) {
		for i, n := range from.Numbers[:len(rows)] {
			*field[N](&rows[i], offset) = N(n)
		}
	}
}

// each sets a field to what value makes of the column at its row.
func each[T, F any](offset uintptr, value func(from *native.Column, i int) F) func([]T, *native.Column) {
	return func(rows []T, from *native.Column) {
		for i := range rows {
			*field[F](&rows[i], offset) = value(from, i)
		}
	}
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
