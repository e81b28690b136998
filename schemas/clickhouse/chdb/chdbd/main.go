// Command chdbd serves the current ClickHouse engine (libchdb.so) over
// ClickHouse's HTTP interface on loopback, so that clickhouse-go and plain
// HTTP clients can talk to it in tests.
//
// Invariant: one query at a time, answered by the real engine. Caveat: it knows
// of the HTTP interface what clickhouse-go and the tests use: the query in the
// URL or the body, data of an INSERT in the body, param_* parameters,
// default_format, and Native replies framed for client_protocol_version.
//
// It is a process of its own because the library brings its own allocator and
// signal handlers.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

func main() {
	library := flag.String("lib", "", "path of libchdb.so")
	dir := flag.String("dir", "", "the engine's data directory")
	flag.Parse()
	if err := serve(*library, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "chdbd:", err)
		os.Exit(1)
	}
}

// serve prints the address it listens on as its first line and answers until it
// is ended.
func serve(library, dir string) error {
	e, err := open(library, dir)
	if err != nil {
		return err
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	fmt.Println(l.Addr())
	return http.Serve(l, &handler{engine: e, dir: dir})
}

// engine is one connection to the library.
type engine struct {
	mu         sync.Mutex
	connection uintptr

	query   func(connection uintptr, query unsafe.Pointer, n uintptr, format unsafe.Pointer, m uintptr) uintptr
	buffer  func(result uintptr) uintptr
	length  func(result uintptr) uintptr
	failure func(result uintptr) string
	destroy func(result uintptr)
}

func open(library, dir string) (*engine, error) {
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", library, err)
	}

	e := &engine{}
	var connect func(argc int32, argv unsafe.Pointer) uintptr
	var signals func(enabled int32)
	purego.RegisterLibFunc(&signals, lib, "chdb_set_signal_handlers_enabled")
	purego.RegisterLibFunc(&connect, lib, "chdb_connect")
	purego.RegisterLibFunc(&e.query, lib, "chdb_query_n")
	purego.RegisterLibFunc(&e.buffer, lib, "chdb_result_buffer")
	purego.RegisterLibFunc(&e.length, lib, "chdb_result_length")
	purego.RegisterLibFunc(&e.failure, lib, "chdb_result_error")
	purego.RegisterLibFunc(&e.destroy, lib, "chdb_destroy_query_result")
	signals(0)
	arguments := [][]byte{[]byte("clickhouse\x00"), []byte("--path=" + dir + "\x00")}
	argv := []unsafe.Pointer{unsafe.Pointer(&arguments[0][0]), unsafe.Pointer(&arguments[1][0])}
	c := connect(int32(len(argv)), unsafe.Pointer(&argv[0]))
	if c == 0 {
		return nil, fmt.Errorf("open engine in %s: chdb_connect returned nothing", dir)
	}

	// chdb_connect returns a pointer to the connection.
	e.connection = *(*uintptr)(pointer(c))
	return e, nil
}

// pointer turns an address of the library's memory into a pointer. The memory
// is not Go's, so the garbage collector has nothing to do with it.
func pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// run executes one query and returns the reply in the format.
func (e *engine) run(query []byte, format string) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := []byte(format)
	r := e.query(e.connection, unsafe.Pointer(unsafe.SliceData(query)), uintptr(len(query)), unsafe.Pointer(unsafe.SliceData(f)), uintptr(len(f)))
	if r == 0 {
		return nil, fmt.Errorf("run query: the engine returned nothing")
	}

	defer e.destroy(r)
	if message := e.failure(r); message != "" {
		return nil, fmt.Errorf("%s", message)
	}

	n := e.length(r)
	if n == 0 {
		return nil, nil
	}

	return append([]byte(nil), unsafe.Slice((*byte)(pointer(e.buffer(r))), n)...), nil
}
