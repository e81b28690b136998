// Package chtest starts ClickHouse for tests: the server that Debian ships (18.16), or a
// cluster of it with ZooKeeper, as real processes that can be killed, starved and cut off; and
// the current engine (libchdb, 26.7), which answers by HTTP and the native protocol. Beside
// that it tells what any process has used.
//
// Invariant: every query is answered by the real thing, which lives in a directory of its own
// with ports of its own and is gone when its test is over. What is missing fails the test and
// names what to install; nothing is skipped.
//
// Caveat: the current engine's library is npm's prebuilt one, for Linux on amd64 and arm64.
package chtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"golang.org/x/sys/unix"
)

// Server is a running server.
type Server struct {
	process
	bin   string
	http  int
	peer  int
	extra string // configuration beside what every server has
	o     Options
}

// Options change the server's configuration.
type Options struct {
	// Password of the user default; "" is none.
	Password string
	// Profile holds extra settings of the default profile as XML, e.g.
	// "<max_memory_usage>1000000</max_memory_usage>".
	Profile string
	// Queries is max_concurrent_queries; 0 is 100, the default of old servers.
	Queries int
	// Connections is max_connections; 0 is 4,096, as Debian's configuration has it. A server
	// whose configuration doesn't say takes 1,024.
	Connections int
}

// Start starts a server and waits until it answers.
func Start(t testing.TB) *Server { return StartWith(t, Options{}) }

// StartWith starts a server with options and waits until it answers.
func StartWith(t testing.TB, o Options) *Server {
	t.Helper()
	s := newServer(t, o)
	s.configure()
	s.Up()
	return s
}

// newServer returns a server that is not configured yet. It is killed with the test.
func newServer(t testing.TB, o Options) *Server {
	t.Helper()
	bin, err := exec.LookPath("clickhouse-server")
	if err != nil {
		t.Fatalf("find clickhouse-server: %v; install Debian's packages clickhouse-server and clickhouse-client", err)
	}

	s := &Server{
		process: process{t: t, what: "clickhouse-server", dir: folder(t), host: "127.0.0.1", port: freePort(t)},
		bin:     bin, http: freePort(t), peer: freePort(t), o: o,
	}
	t.Cleanup(s.Kill)
	return s
}

// Servers have their folders in memory where so much of it is free: ext4 looks through all inodes
// that neighbours freed for each file of a part. What a test kills is a process: what that wrote is
// there afterwards on tmpfs as on a disk.
const (
	inMemory    = "/dev/shm"
	leastMemory = 8 << 30
)

// folder makes a server's folder. It goes with the test.
func folder(t testing.TB) string {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(inMemory, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < leastMemory {
		return t.TempDir()
	}

	dir, err := os.MkdirTemp(inMemory, "laggard-clickhouse-")
	if err != nil {
		return t.TempDir() // what is there may be for others alone
	}

	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the server's folder: %v", err)
		}
	})
	return dir
}

// Store is the store URL of the database.
func (s *Server) Store(database string) string { return "clickhouse://" + s.Addr() + "/" + database }

// Running reports whether the server was started and not killed since.
func (s *Server) Running() bool {
	cmd, _ := s.running()
	return cmd != nil
}

// PID is the server's process.
func (s *Server) PID() int {
	cmd, _ := s.running()
	return cmd.Process.Pid
}

// Up starts the server, after Kill on the same data, and waits until it answers.
func (s *Server) Up() {
	s.t.Helper()
	s.Launch()
	s.Await()
}

// Launch starts the process without waiting for it to answer. When it leaves by itself it is
// started again, as service managers do: on a busy machine 18.16 aborts at times, joining a
// thread that is gone.
func (s *Server) Launch() {
	s.t.Helper()
	s.start(func() {
		s.t.Logf("clickhouse-server on %s has left by itself, and is started again:\n%s", s.Addr(), s.Log())
	}, s.bin, "--config-file="+filepath.Join(s.dir, "config.xml"))
}

// Stop ends the process as an operator does (SIGTERM) and waits until it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	cmd, done := s.release()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatalf("stop clickhouse-server: %v", err)
	}

	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		s.t.Fatalf("clickhouse-server does not leave on SIGTERM:\n%s", s.Log())
	}
}

// Conn opens a connection to a database ("" is default). It is closed with the test.
func (s *Server) Conn(database string) clickhouse.Conn {
	s.t.Helper()
	conn, err := clickhouse.Open(&clickhouse.Options{
		Addr: []string{s.Addr()}, Auth: clickhouse.Auth{Database: database, Username: "default", Password: s.o.Password},
		DialTimeout: 5 * time.Second, ReadTimeout: time.Minute,
	})
	if err != nil {
		s.t.Fatal(err)
	}

	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Exec runs statements on the database default.
func (s *Server) Exec(statements ...string) {
	s.t.Helper()
	conn := s.Conn("")
	for _, q := range statements {
		if err := conn.Exec(context.Background(), q); err != nil {
			s.t.Fatalf("%s: %v", q, err)
		}
	}

	if err := conn.Close(); err != nil {
		s.t.Error(err)
	}
}

// Database makes a new database and returns its name.
func (s *Server) Database() string {
	s.t.Helper()
	name := fmt.Sprintf("db_%d", time.Now().UnixNano())
	s.Exec("CREATE DATABASE " + name)
	return name
}

// Count runs a query that answers with one UInt64.
func (s *Server) Count(query string) uint64 {
	s.t.Helper()
	var n uint64
	if err := s.Row(query, &n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}

	return n
}

// Row runs a query that answers with one row, on a server that may be down or busy, over a
// connection of its own.
func (s *Server) Row(query string, into ...any) error {
	conn := s.Conn("")
	return errors.Join(conn.QueryRow(context.Background(), query).Scan(into...), conn.Close())
}

// configure writes the server's two files. A query may take 4 GB, unless the profile says otherwise.
func (s *Server) configure() {
	s.t.Helper()
	config := fmt.Sprintf(`<yandex>
<logger><level>warning</level><log>%[1]s/server.log</log><errorlog>%[1]s/error.log</errorlog></logger>
<http_port>%[2]d</http_port><tcp_port>%[3]d</tcp_port><interserver_http_port>%[4]d</interserver_http_port>
<listen_host>%[5]s</listen_host><interserver_http_host>%[5]s</interserver_http_host>
<max_connections>%[8]d</max_connections><max_concurrent_queries>%[7]d</max_concurrent_queries>
<mark_cache_size>67108864</mark_cache_size><uncompressed_cache_size>8388608</uncompressed_cache_size>
<path>%[1]s/data/</path><tmp_path>%[1]s/tmp/</tmp_path><user_files_path>%[1]s/files/</user_files_path>
<users_config>%[1]s/users.xml</users_config>
<default_profile>default</default_profile><default_database>default</default_database>
<timezone>UTC</timezone>%[6]s
</yandex>`, s.dir, s.http, s.port, s.peer, s.host, s.extra, cmp.Or(s.o.Queries, 100), cmp.Or(s.o.Connections, 4096))
	profile := s.o.Profile
	if !strings.Contains(profile, "<max_memory_usage>") {
		profile += "<max_memory_usage>4000000000</max_memory_usage>"
	}

	users := fmt.Sprintf(`<yandex>
<profiles><default>%s</default></profiles>
<users><default><password>%s</password><networks><ip>127.0.0.1</ip>%s</networks><profile>default</profile><quota>default</quota></default></users>
<quotas><default></default></quotas>
</yandex>`, profile, s.o.Password, s.peers())
	for name, text := range map[string]string{"config.xml": config, "users.xml": users} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
}

// peers are the addresses beside loopback that may connect: those of its own network.
func (s *Server) peers() string {
	if s.host == "127.0.0.1" {
		return ""
	}

	return "<ip>" + s.host + "/24</ip>"
}

// SetPassword changes the password of the user default; the server reads its
// configuration again by itself within a few seconds.
func (s *Server) SetPassword(password string) {
	s.o.Password = password
	s.configure()
}

// SetProfile replaces Options.Profile, in the same way.
func (s *Server) SetProfile(settings string) {
	s.o.Profile = settings
	s.configure()
}

// Client runs clickhouse-client with a query and what it reads on stdin.
func (s *Server) Client(stdin []byte, query string) (string, error) {
	cmd := s.client(query)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Dump returns what clickhouse-client prints for a query, byte by byte.
func (s *Server) Dump(t testing.TB, query string) []byte {
	t.Helper()
	out, err := s.client(query).Output()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}

	return out
}

// client is Debian's own command line client with a query.
func (s *Server) client(query string) *exec.Cmd {
	bin, err := exec.LookPath("clickhouse-client")
	if err != nil {
		s.t.Fatalf("find clickhouse-client: %v; install Debian's package clickhouse-client", err)
	}

	cmd := exec.Command(bin, "--host", s.host, "--port", fmt.Sprint(s.port), "--query", query)
	if s.o.Password != "" {
		cmd.Args = append(cmd.Args, "--password", s.o.Password)
	}

	return cmd
}

// freePort returns a port that nobody listens on, drawn from below those that the kernel gives out: a
// connection of another test could have one of them by the time the server starts.
func freePort(t testing.TB) int {
	t.Helper()
	const low, high, tries = 12000, 32000, 100
	for range tries {
		port := low + rand.IntN(high-low)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}

	t.Fatalf("no free port between %d and %d", low, high)
	return 0
}
