package clickhouse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// headings are the columns of a table as a current server has them.
func headings(t *testing.T, table string) []ddl.Column {
	t.Helper()
	var all []ddl.Column
	for _, c := range ship.LayoutOf(table).Columns {
		h := ddl.Column{Name: c.Name}
		for _, typ := range wants[c.Type] {
			if plain := typ == "String"; !plain && typ != lowCardinality || (c.Name == "path") == plain {
				h.Type = typ
			}
		}

		all = append(all, h)
	}

	return all
}

// seen is what a server made of one insert.
type seen struct {
	query  proto.Query
	block  proto.Block
	column map[string]proto.Column
	err    error
}

// current answers one insert as a server of today does: ch-go decodes the packets.
// Asked to refuse, it sends an exception instead of the header.
func current(l net.Listener, header []ddl.Column, refuse int32) seen {
	var s seen
	conn, err := l.Accept()
	if err != nil {
		return seen{err: err}
	}
	defer conn.Close()
	r := proto.NewReader(conn)
	var b proto.Buffer
	expect := func(code proto.ClientCode) {
		if c, err := r.ReadByte(); s.err == nil && (err != nil || proto.ClientCode(c) != code) {
			s.err = fmt.Errorf("packet %d, %v, want %s", c, err, code)
		}
	}
	decode := func(v interface {
		DecodeAware(*proto.Reader, int) error
	}) {
		if err := v.DecodeAware(r, native.Revision); s.err == nil {
			s.err = err
		}
	}
	answer := func() {
		if _, err := conn.Write(b.Buf); s.err == nil {
			s.err = err
		}

		b.Reset()
	}
	expect(proto.ClientCodeHello)
	var hello proto.ClientHello
	if err := hello.Decode(r); err != nil {
		return seen{err: err}
	}

	(&proto.ServerHello{Name: "current", Major: 26, Minor: 7, Revision: 54480, Timezone: "UTC"}).EncodeAware(&b, native.Revision)
	answer()
	data := func() {
		expect(proto.ClientCodeData)
		decode(&proto.ClientData{})
		r.EnableCompression()
		if err := s.block.DecodeBlock(r, native.Revision, auto(s.column)); s.err == nil {
			s.err = err
		}

		r.DisableCompression()
	}
	expect(proto.ClientCodeQuery)
	decode(&s.query)
	data()
	if refuse != 0 {
		proto.ServerCodeException.Encode(&b)
		b.EncodeAware(&proto.Exception{Code: proto.Error(refuse), Name: "DB::Exception", Message: "no"}, native.Revision)
		answer()
		return s
	}

	b.EncodeAware(proto.TableColumns{First: "", Second: "columns"}, native.Revision)
	proto.ServerCodeData.Encode(&b)
	b.PutString("")
	start := len(b.Buf)
	proto.Block{Columns: len(header)}.EncodeAware(&b, native.Revision)
	for _, h := range header {
		b.PutString(h.Name)
		b.PutString(h.Type)
	}

	packed := compressed(b.Buf[start:])
	b.Buf = append(b.Buf[:start], packed...)
	answer()
	s.column = map[string]proto.Column{}
	data()
	filled := s.block
	data()
	if s.block.Rows != 0 {
		s.err = errors.Join(s.err, fmt.Errorf("%d rows behind the block", s.block.Rows))
	}

	s.block = filled
	proto.ServerCodeProgress.Encode(&b)
	b.EncodeAware(proto.Progress{WroteRows: 1}, native.Revision)
	proto.ServerCodeEndOfStream.Encode(&b)
	answer()
	return s
}

// TestLink_CurrentProtocol holds the packets of an insert to ch-go's decoders, at
// the revision that current servers are spoken to with.
func TestLink_CurrentProtocol(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	batch := ship.Cut(&row.Rows{Raws: shiptest.Rows("j'\x00", 3, 0, 700).Raws})[0]
	answers := make(chan seen, 1)
	go func() { answers <- current(l, headings(t, row.RecordsTable), 0) }()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	link, err := native.Dial(ctx, &clickhouse.Options{
		Addr: []string{l.Addr().String()}, Auth: clickhouse.Auth{Username: "u", Database: "d", Password: "secret"}, Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	})
	if err != nil {
		t.Fatal(err)
	}

	query := insertQuery("`d`.`records`", row.RecordsTable)
	if err := link.Begin(ctx, query, "id-1", clickhouse.Settings{"async_insert": 0, "insert_deduplication_token": "x'y"}); err != nil {
		t.Fatal(err)
	}

	var b block
	layout, base := batch.Layout()
	if err := b.shape(row.RecordsTable, layout, link.Header); err != nil {
		t.Fatal(err)
	}

	b.fill(layout, base, batch.Len(), batch.Raws.Words)
	if err := link.Send(ctx, b.encode); err != nil {
		t.Fatal(err)
	}

	if err := link.Close(); err != nil {
		t.Error(err)
	}

	got := <-answers
	if got.err != nil {
		t.Fatal(got.err)
	}

	want := []proto.Setting{{Key: "async_insert", Value: "0", Important: true}, {Key: "insert_deduplication_token", Value: "x'y", Important: true}}
	if got.query.ID != "id-1" || got.query.Body != query || fmt.Sprint(got.query.Settings) != fmt.Sprint(want) {
		t.Fatalf("the server saw %+v", got.query)
	}

	if got.block.Rows != batch.Len() || len(got.column) != len(link.Header) {
		t.Fatalf("%d rows of %d columns, want %d of %d", got.block.Rows, len(got.column), batch.Len(), len(link.Header))
	}

	for i, r := range batch.Raws.AppendTo(nil) {
		group := got.column["group"].(*proto.ColLowCardinality[string]).Row(i)
		path := got.column["path"].(*proto.ColStr).Row(i)
		start := (*got.column["start_ns"].(*proto.ColInt64))[i]
		if group != r.Group || path != r.Path || start != r.StartNs {
			t.Fatalf("row %d: %q %q %d, want %q %q %d", i, group, path, start, r.Group, r.Path, r.StartNs)
		}
	}
}

// TestLink_Exception tells the code of what a server refuses.
func TestLink_Exception(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers := make(chan seen, 1)
	go func() { answers <- current(l, nil, 60) }()
	link, err := native.Dial(t.Context(), &clickhouse.Options{Addr: []string{l.Addr().String()}, Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4}})
	if err != nil {
		t.Fatal(err)
	}

	var exception *clickhouse.Exception
	if err := link.Begin(t.Context(), "INSERT", "id", nil); !errors.As(err, &exception) || exception.Code != 60 || exception.Message != "no" {
		t.Fatalf("%v", err)
	}

	if err := link.Close(); err != nil {
		t.Error(err)
	}

	<-answers
}

// TestBlock_CurrentEngine stores blocks of every table in the newest engine, by its
// Native format, and reads them back.
func TestBlock_CurrentEngine(t *testing.T) {
	engine := chtest.StartEngine(t)
	sink, err := Open("clickhouse://"+engine.Address+"/default?protocol=http&compression=none", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := sink.Create(t.Context()); err != nil {
		t.Fatal(err)
	}

	for _, batch := range ship.Cut(shiptest.Rows("block", 3, 0, 1000)) {
		var b block
		layout, base := batch.Layout()
		if err := b.shape(batch.Table, layout, headings(t, batch.Table)); err != nil {
			t.Fatal(err)
		}

		b.fill(layout, base, batch.Len(), batch.Raws.Words)
		var body bytes.Buffer
		if err := b.encode(0, func(p []byte) error { body.Write(p); return nil }); err != nil {
			t.Fatal(err)
		}

		query := strings.TrimSuffix(insertQuery("default."+batch.Table, batch.Table), "VALUES") + "FORMAT Native"
		answer, err := http.Post("http://"+engine.Address+"/?query="+url.QueryEscape(query), "", &body)
		if err != nil {
			t.Fatal(err)
		}

		if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v", batch.Table, answer.Status, err)
		}

		stored, err := sink.Stored(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}

		for i, there := range stored {
			if !there {
				t.Fatalf("row %d of %s is not stored as it is", i, batch.Table)
			}
		}
	}

	groups, err := engine.Query("SELECT groups, group_ranks FROM default.ranks FORMAT TSV")
	if err != nil || strings.TrimSpace(groups) != `['dp:dp\'0:0:2','tp:t:1:2']`+"\t[[0,4],[0,1]]" {
		t.Fatalf("groups %q, %v", groups, err)
	}

	sums, err := engine.Query("SELECT count(), sum(seq), uniqExact(`group`), max(start_ns) FROM default.records FORMAT TSV")
	if want := fmt.Sprintf("1000\t%d\t1\t%d", 999*1000/2, shiptest.Base+999*1_000_000_000); err != nil || strings.TrimSpace(sums) != want {
		t.Fatalf("sums %q, want %q, %v", sums, want, err)
	}
}

// auto decodes the columns of a block by the types that it names.
type auto map[string]proto.Column

func (a auto) DecodeResult(r *proto.Reader, _ int, b proto.Block) error {
	for range b.Columns {
		name, err := r.Str()
		if err != nil {
			return err
		}

		typ, err := r.Str()
		if err != nil {
			return err
		}

		var column proto.Column
		switch typ {
		case "LowCardinality(String)":
			column = new(proto.ColStr).LowCardinality()
		default:
			var c proto.ColAuto
			if err := c.Infer(proto.ColumnType(typ)); err != nil {
				return err
			}

			column = c.Data
		}

		if s, ok := column.(proto.StateDecoder); ok {
			if err := s.DecodeState(r); err != nil {
				return err
			}
		}

		if err := column.DecodeColumn(r, b.Rows); err != nil {
			return fmt.Errorf("%s %s: %w", name, typ, err)
		}

		a[name] = column
	}

	return nil
}

func compressed(b []byte) []byte {
	w := compress.NewWriter(compress.LevelZero, compress.LZ4)
	if err := w.Compress(b); err != nil {
		panic(err)
	}

	return w.Data
}
