package native

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
)

// Column is one column of a block that was read: Numbers (of any width; an unsigned one of
// 64 bits keeps its bits), Texts, or lists. It is valid until the next block.
type Column struct {
	Numbers []int64
	Texts   []string // nil of a column of numbers
	// Of has the elements of all lists, one list after the other, and Ends where each list
	// ends in it. Of may be lists, too; nil of a column without lists.
	Ends []int64
	Of   *Column
}

// List returns where the list of a row begins and ends in Of.
func (c *Column) List(row int) (from, to int64) {
	if row > 0 {
		from = c.Ends[row-1]
	}

	return from, c.Ends[row]
}

// Select sends a query and calls each with the columns and the number of rows of every
// block that comes. Integers up to 64 bits, String, LowCardinality(String), Array(String) and
// Array(Array(UInt32)) can be read.
// Of Texts neighbours that are the same word are the same string.
func (c *Conn) Select(ctx context.Context, query string, settings clickhouse.Settings, each func(columns []Column, rows int) error) error {
	return c.until(ctx, func() error {
		if err := c.query(query, "", settings); err != nil {
			return err
		}

		s := selection{each: each}
		ended, err := c.packets("a query", func() (bool, error) { return false, s.read(c.reader, c.version) })
		if ended {
			return nil
		}

		var refused *clickhouse.Exception
		if errors.As(err, &refused) {
			return refused
		}

		return fmt.Errorf("read answer: %w", err)
	})
}

// selection is what the blocks of one answer are read into.
type selection struct {
	results proto.Results
	columns []Column
	each    func([]Column, int) error
}

// read reads a block as it lies in the packet, or in a body of the format Native.
func (s *selection) read(r *proto.Reader, version int) error {
	var b proto.Block
	if err := b.DecodeBlock(r, version, s); err != nil {
		return err
	}

	if b.Rows == 0 {
		return nil
	}

	if s.columns == nil {
		s.columns = make([]Column, len(s.results))
	}

	for i := range s.results {
		if err := s.columns[i].take(s.results[i].Data); err != nil {
			return fmt.Errorf("column %s: %w", s.results[i].Name, err)
		}
	}

	return s.each(s.columns, b.Rows)
}

// DecodeResult reads the columns of a block; those of the first tell the types.
func (s *selection) DecodeResult(r *proto.Reader, version int, b proto.Block) error {
	for len(s.results) < b.Columns {
		s.results = append(s.results, proto.ResultColumn{Data: &anyColumn{}})
	}

	return s.results.DecodeResult(r, version, b)
}

// anyColumn is a column whose type the server tells. ch-go's own can't tell lists of lists,
// and forgets the dictionary of a LowCardinality.
type anyColumn struct{ proto.ColAuto }

// listsOfLists is the type of group_ranks: the only list of lists in our tables.
const listsOfLists = "Array(Array(UInt32))"

// Infer implements proto.Inferable.
func (c *anyColumn) Infer(t proto.ColumnType) error {
	if c.Data == nil && t == listsOfLists {
		c.Data, c.DataType = proto.NewArray(proto.NewArray(new(proto.ColUInt32))), t
		return nil
	}

	return c.ColAuto.Infer(t)
}

// DecodeState implements proto.StateDecoder.
func (c *anyColumn) DecodeState(r *proto.Reader) error {
	if s, ok := c.Data.(proto.StateDecoder); ok {
		return s.DecodeState(r)
	}

	return nil
}

// errType is that a column has a type that we ask for nowhere.
var errType = errors.New("of a type that is no integer, no text and no list of them")

// take takes the values of a column of a block. Those that need no other form stay ch-go's until the
// next block.
func (c *Column) take(data proto.ColResult) error {
	if c, ok := data.(*anyColumn); ok {
		data = c.Data
	}

	switch v := data.(type) {
	case *proto.ColInt64:
		c.Numbers = *v
	case *proto.ColUInt64:
		c.Numbers = widened(c.Numbers, *v)
	case *proto.ColInt32:
		c.Numbers = widened(c.Numbers, *v)
	case *proto.ColUInt32:
		c.Numbers = widened(c.Numbers, *v)
	case *proto.ColUInt16:
		c.Numbers = widened(c.Numbers, *v)
	case *proto.ColUInt8:
		c.Numbers = widened(c.Numbers, *v)
	case *proto.ColLowCardinality[string]:
		c.Texts = v.Values
	case *proto.ColStr:
		c.Texts = slices.Grow(c.Texts[:0], len(v.Pos))[:len(v.Pos)]
		// Equal texts mostly follow each other, as rows are sorted by rank: they share one string.
		last := ""
		for i := range c.Texts {
			if word := v.RowBytes(i); string(word) != last {
				last = string(word)
			}

			c.Texts[i] = last
		}
	case *proto.ColArr[string]:
		return c.lists(v.Offsets, v.Data)
	case *proto.ColArr[[]uint32]:
		return c.lists(v.Offsets, v.Data)
	case *proto.ColArr[uint32]:
		return c.lists(v.Offsets, v.Data)
	default:
		return errType
	}

	return nil
}

// lists takes the values of a column of lists.
func (c *Column) lists(ends proto.ColUInt64, of proto.ColResult) error {
	if c.Of == nil {
		c.Of = &Column{}
	}

	c.Ends = widened(c.Ends, ends)
	return c.Of.take(of)
}

// widened returns values as 64-bit ones, in dst where there is room.
func widened[T ~uint8 | ~uint16 | ~uint32 | ~int32 | ~uint64](dst []int64, values []T) []int64 {
	dst = slices.Grow(dst[:0], len(values))[:len(values)]
	for i, v := range values {
		dst[i] = int64(v)
	}

	return dst
}
