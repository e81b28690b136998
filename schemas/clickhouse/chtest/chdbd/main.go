// Command chdbd is a server of the current ClickHouse engine (libchdb.so) on loopback: the
// native protocol and HTTP, many connections at once, as `clickhouse local` serves them
// after SYSTEM START LISTEN. It ends when its standard input does.
//
// Caveats: `clickhouse local` makes no queue of asynchronous inserts. It takes their settings
// and inserts at once, and system.asynchronous_inserts stays empty. It aborts where a client
// goes away in the middle of a handshake: HTTP is passed on to it request by request (front),
// and by the native protocol nobody may do so.
//
// It is a process of its own because the library brings its own allocator and
// signal handlers.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

func main() {
	library := flag.String("lib", "", "path of libchdb.so")
	dir := flag.String("dir", "", "the engine's data directory")
	users := flag.String("users", "", "a users.xml, without it everybody may do everything")
	flag.Parse()
	if err := serve(*library, *dir, *users); err != nil {
		fail(err)
	}
}

// serve runs the engine until standard input has ended.
func serve(library, dir, users string) error {
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return fmt.Errorf("load %s: %w", library, err)
	}

	var run func(argc int32, argv unsafe.Pointer) uintptr
	var failure func(result uintptr) string
	var signals func(enabled int32)
	purego.RegisterLibFunc(&signals, lib, "chdb_set_signal_handlers_enabled")
	purego.RegisterLibFunc(&run, lib, "chdb_query_cmdline")
	purego.RegisterLibFunc(&failure, lib, "chdb_result_error")
	signals(0)
	signal.Ignore(unix.SIGPIPE) // a client that goes away in the middle of an answer

	ports := filepath.Join(dir, "ports")
	go tell(ports)
	arguments := []string{
		"clickhouse", "--path=" + dir, "--listen_host=127.0.0.1", "--tcp_port=0", "--http_port=0", "--multiquery", "--query=" +
			"SYSTEM START LISTEN TCP; SYSTEM START LISTEN HTTP;" +
			"SELECT getServerPort('http_port'), getServerPort('tcp_port') INTO OUTFILE '" + ports + "';" +
			"SELECT count() FROM file('/dev/stdin', LineAsString) FORMAT Null",
	}
	if users != "" {
		config := filepath.Join(dir, "config.xml")
		text := "<clickhouse><user_directories><users_xml><path>" + users + "</path></users_xml></user_directories></clickhouse>"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return err
		}

		arguments = append(arguments, "--config-file="+config)
	}

	var argv []unsafe.Pointer
	for _, a := range arguments {
		argv = append(argv, unsafe.Pointer(unsafe.StringData(a+"\x00")))
	}

	result := run(int32(len(argv)), unsafe.Pointer(&argv[0]))
	runtime.KeepAlive(argv)
	if result == 0 {
		return fmt.Errorf("run engine in %s: it returned nothing", dir)
	}

	if message := failure(result); message != "" {
		return fmt.Errorf("run engine in %s: %s", dir, message)
	}

	return nil
}

// tell waits for the file that the engine writes once it listens, and prints the ports of
// HTTP and of the native protocol.
func tell(path string) {
	var behind, native int
	for n := 0; n < 2; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			fail(err)
		}

		n, _ = fmt.Sscanf(string(text), "%d\t%d\n", &behind, &native)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}

	fmt.Println(l.Addr().(*net.TCPAddr).Port, native)
	fail(http.Serve(l, front(fmt.Sprintf("127.0.0.1:%d", behind))))
}

// front passes whole requests on, and lets the engine end its answer whether or not anybody
// still reads it.
func front(address string) http.Handler {
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", address
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}

		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		proxy.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
	})
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "chdbd:", err)
	os.Exit(1)
}
