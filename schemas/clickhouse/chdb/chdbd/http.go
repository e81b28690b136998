package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// handler answers ClickHouse's HTTP interface.
type handler struct {
	engine *engine
	dir    string
}

var (
	insertData = regexp.MustCompile(`(?is)^\s*(INSERT\s+INTO\s.*?)\s+FORMAT\s+(\w+)\s*$`)
	ownFormat  = regexp.MustCompile(`(?is)\sFORMAT\s+(\w+)\s*;?\s*$`)
	exception  = regexp.MustCompile(`Code: (\d+)`)
)

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	query := r.URL.Query().Get("query")
	data := body
	if query == "" {
		query, data = string(body), nil
	}

	if query == "" {
		fmt.Fprintln(w, "Ok.")
		return
	}

	reply, err := h.answer(r, query, data)
	if err != nil {
		if m := exception.FindStringSubmatch(err.Error()); m != nil {
			w.Header().Set("X-ClickHouse-Exception-Code", m[1])
		}

		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	w.Header().Set("X-ClickHouse-Server-Display-Name", "chdb")
	w.Write(reply)
}

func (h *handler) answer(r *http.Request, query string, data []byte) ([]byte, error) {
	for key, values := range r.URL.Query() {
		if name, ok := strings.CutPrefix(key, "param_"); ok {
			set := "SET param_" + name + " = '" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(values[0]) + "'"
			if _, err := h.engine.run([]byte(set), "Null"); err != nil {
				return nil, err
			}
		}
	}

	if m := insertData.FindStringSubmatch(query); m != nil && len(data) > 0 {
		return nil, h.insert(m[1], m[2], data)
	}

	format := r.URL.Query().Get("default_format")
	if m := ownFormat.FindStringSubmatch(query); m != nil {
		format = m[1]
	}

	if format == "" {
		format = "TabSeparated"
	}

	reply, err := h.engine.run([]byte(query), format)
	if err != nil || !strings.EqualFold(format, "Native") {
		return reply, err
	}

	version, _ := strconv.Atoi(r.URL.Query().Get("client_protocol_version"))
	return reframe(reply, version)
}

// insert hands the data of an INSERT to the engine through a file.
func (h *handler) insert(statement, format string, data []byte) error {
	f, err := os.CreateTemp(h.dir, "insert-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}

	_, err = h.engine.run(fmt.Appendf(nil, "%s FROM INFILE '%s' FORMAT %s", statement, f.Name(), format), "Null")
	return err
}

// reframe turns Native blocks without framing, as the engine writes them, into
// those that a client of the protocol version expects.
func reframe(blocks []byte, version int) ([]byte, error) {
	if version == 0 {
		return blocks, nil
	}

	in := chproto.NewReader(bytes.NewReader(blocks))
	var out chproto.Buffer
	for {
		block := proto.Block{ServerContext: &column.ServerContext{Timezone: time.UTC}}
		err := block.Decode(in, 0)
		if errors.Is(err, io.EOF) {
			return out.Buf, nil
		}

		if err == nil {
			err = block.Encode(&out, uint64(version))
		}

		if err != nil {
			return nil, fmt.Errorf("reframe Native block: %w", err)
		}
	}
}
