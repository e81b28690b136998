package endpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laggard-dev/laggard/collector/switchboard/endpoint/endpointtest"
	"github.com/laggard-dev/laggard/schemas/tracepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// board answers every call.
type board struct {
	tracepb.UnimplementedTrainingDataTraceServer
}

func (board) GetTrainingDataTraceSwitch(context.Context, *tracepb.DataStatusReq) (*tracepb.DataStatusRes, error) {
	return &tracepb.DataStatusRes{Code: 200}, nil
}

func (board) SubscribeDataTraceSwitch(_ *tracepb.ProfilingClientInfo, s grpc.ServerStreamingServer[tracepb.DataStatusRes]) error {
	return s.Send(&tracepb.DataStatusRes{Code: 200})
}

// lines are what a listener says, and where it listens.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}

	return l.text.Write(b)
}

// until waits for a line with a word in it and returns what follows the word there.
func (l *lines) until(t *testing.T, word string) string {
	t.Helper()
	for late := time.After(time.Minute); ; {
		l.mu.Lock()
		text := l.text.String()
		l.mu.Unlock()
		if _, after, ok := strings.Cut(text, word); ok {
			line, _, _ := strings.Cut(after, "\n")
			return line
		}

		select {
		case <-l.news:
		case <-late:
			t.Fatalf("never said %q: %s", word, text)
		}
	}
}

// serving serves in the background until the test ends.
func serving(t *testing.T, o Options, address string) (string, *lines) {
	t.Helper()
	at, err := o.Parse(address)
	if err != nil {
		t.Fatal(err)
	}

	said := &lines{news: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- o.Serve(ctx, at, slog.New(slog.NewTextHandler(said, nil)), func(s grpc.ServiceRegistrar) { tracepb.RegisterTrainingDataTraceServer(s, board{}) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	found, err := o.Parse(said.until(t, `"serving the switch" address=`))
	if err != nil {
		t.Fatal(err)
	}

	return found, said
}

// get makes a call and opens a stream; it returns the first error.
func get(t *testing.T, o Options, at string) error {
	t.Helper()
	conn, err := o.Dial(at)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := tracepb.NewTrainingDataTraceClient(conn)
	if _, err := c.GetTrainingDataTraceSwitch(ctx, &tracepb.DataStatusReq{}); err != nil {
		return err
	}

	s, err := c.SubscribeDataTraceSwitch(ctx, &tracepb.ProfilingClientInfo{})
	if err == nil {
		_, err = s.Recv()
	}

	return err
}

// authority signs certificates, as Options.
type authority struct{ *endpointtest.Authority }

func newAuthority(t *testing.T) authority { return authority{endpointtest.New(t, t.TempDir())} }

// leaf signs a certificate for an address and returns options that show it.
func (a authority) leaf(name, ip string) (o Options) {
	o.Cert, o.Key = a.Leaf(name, ip)
	return o
}

func token(t *testing.T, word string) string {
	t.Helper()
	return endpointtest.Token(t, filepath.Join(t.TempDir(), "token"), word)
}

// TestTCP: over real TLS, with certificates made here: who must show what.
func TestTCP(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	server, elsewhere, caller, stranger := a.leaf("server", "127.0.0.1"), a.leaf("elsewhere", "192.0.2.1"), a.leaf("caller", "127.0.0.1"), other.leaf("stranger", "127.0.0.1")
	right, wrong := token(t, "a-token-of-this-test"), token(t, "another-token-of-it")
	with := func(o Options, change func(*Options)) Options {
		change(&o)
		return o
	}
	ca := func(o *Options) { o.CA = a.CA() }
	known := Options{CA: a.CA()}
	word := func(file string) func(*Options) { return func(o *Options) { o.TokenFile = file } }
	tests := []struct {
		name           string
		server, caller Options
		code           codes.Code
		words          string
	}{
		{"plain loopback", Options{}, Options{}, codes.OK, ""},
		{"TLS", server, known, codes.OK, ""},
		{"TLS, called in the clear", server, Options{}, codes.Unavailable, ""},
		{"plain, called with TLS", Options{}, known, codes.Unavailable, "tls"},
		{"a server of another authority", server, Options{CA: other.CA()}, codes.Unavailable, "unknown authority"},
		{"a certificate for another address", elsewhere, known, codes.Unavailable, "not 127.0.0.1"},
		{"token", with(server, word(right)), with(known, word(right)), codes.OK, ""},
		{"wrong token", with(server, word(right)), with(known, word(wrong)), codes.Unauthenticated, "--switch-token-file"},
		{"no token", with(server, word(right)), known, codes.Unauthenticated, "--switch-token-file"},
		{"token on loopback", Options{TokenFile: right}, Options{TokenFile: right}, codes.OK, ""},
		{"no token on loopback", Options{TokenFile: right}, Options{}, codes.Unauthenticated, tokenEnvironment},
		{"mutual TLS", with(server, ca), with(caller, ca), codes.OK, ""},
		{"mutual TLS, no certificate", with(server, ca), known, codes.Unavailable, ""},
		{"mutual TLS, a stranger's certificate", with(server, ca), with(stranger, ca), codes.Unavailable, ""},
		{"mutual TLS and token", with(with(server, ca), word(right)), with(with(caller, ca), word(right)), codes.OK, ""},
		{"mutual TLS, no token", with(with(server, ca), word(right)), with(caller, ca), codes.Unauthenticated, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at, _ := serving(t, tt.server, "127.0.0.1:0")
			err := get(t, tt.caller, at)
			if status.Code(err) != tt.code || err != nil && !strings.Contains(err.Error(), tt.words) {
				t.Errorf("call: %v, want %v with %q", err, tt.code, tt.words)
			}
		})
	}
}

// TestRenewedCertificate: a certificate that is replaced is shown at the next handshake.
func TestRenewedCertificate(t *testing.T) {
	a := newAuthority(t)
	at, _ := serving(t, a.leaf("server", "192.0.2.1"), "127.0.0.1:0")
	known := Options{CA: a.CA()}
	if err := get(t, known, at); status.Code(err) != codes.Unavailable {
		t.Fatalf("a certificate for another address: %v", err)
	}

	a.leaf("server", "127.0.0.1")
	if err := get(t, known, at); err != nil {
		t.Fatalf("after it was renewed: %v", err)
	}
}

// TestBeyondLoopback: nothing is bound or called there without TLS and a proof of who
// calls, unless somebody says so.
func TestBeyondLoopback(t *testing.T) {
	a := newAuthority(t)
	server := a.leaf("server", "127.0.0.1")
	mutual, word, open := server, server, Options{Insecure: true}
	mutual.CA, word.TokenFile = a.CA(), token(t, "a-token-of-this-test")
	for _, tt := range []struct {
		name        string
		o           Options
		serve, call bool
	}{
		{"nothing", Options{}, false, false},
		{"token in the clear", Options{TokenFile: word.TokenFile}, false, false},
		{"TLS, nobody is asked", server, false, true},
		{"TLS and token", word, true, true},
		{"mutual TLS", mutual, true, true},
		{"told", open, true, true},
	} {
		for _, address := range []string{":9611", "0.0.0.0:9611", "[::]:9611", "192.0.2.1:9611", "a-host:9611"} {
			at, err := tt.o.Parse(address)
			if err != nil {
				t.Fatal(err)
			}

			secret, err := tt.o.token()
			if err != nil {
				t.Fatal(err)
			}

			if err := tt.o.mayServe(at, secret); (err == nil) != tt.serve {
				t.Errorf("%s: serve %s: %v", tt.name, address, err)
			}

			if err := tt.o.mayCall(at); (err == nil) != tt.call {
				t.Errorf("%s: call %s: %v", tt.name, address, err)
			}
		}
	}

	err := (&Options{}).Serve(context.Background(), "0.0.0.0:0", slog.New(slog.DiscardHandler), nil)
	if err == nil || !strings.Contains(err.Error(), "--switch-insecure") {
		t.Errorf("served to everybody: %v", err)
	}

	if conn, err := (&Options{}).Dial("192.0.2.1:9611"); err == nil {
		conn.Close()
		t.Error("called in the clear")
	}
}

func TestWords(t *testing.T) {
	o := Options{RingDir: "/run/laggard"}
	for text, want := range map[string]string{
		"unix": "unix:/run/laggard/switch.sock", "unix:/a//b": "unix:/a/b", "unix:b": "unix:b", "./b": "unix:b", "host:1": "host:1", ":1": ":1", "[::1]:1": "[::1]:1",
		"host": "", "": "", "unix:": "",
	} {
		at, err := o.Parse(text)
		if (err == nil) != (want != "") || err == nil && at != want {
			t.Errorf("Parse(%q) = %v, %v, want %s", text, at, err, want)
		}
	}

	t.Setenv(tokenEnvironment, "short")
	if err := o.Check(); err == nil || strings.Contains(err.Error(), "short") {
		t.Errorf("a short token: %v", err)
	}

	t.Setenv(tokenEnvironment, "long-enough-to-count")
	if err := o.Check(); err != nil {
		t.Error(err)
	}

	if word, err := (&Options{TokenFile: token(t, "another-word-of-a-file")}).token(); err != nil || word != "another-word-of-a-file" {
		t.Errorf("token %q, %v", word, err)
	}

	for _, bad := range []Options{{Cert: "x"}, {Key: "x"}, {TokenFile: "/nowhere"}, {TokenFile: token(t, "")}} {
		if err := bad.Check(); err == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

// closed waits until the other end has closed.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	for b := make([]byte, 256); ; {
		if _, err := c.Read(b); err != nil {
			if !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
				t.Errorf("not closed: %v", err)
			}

			return
		}
	}
}

// TestSilentConnections: so many of one peer at once, more are closed unread; those that
// say nothing are closed, and others find room again.
func TestSilentConnections(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "unix"} {
		t.Run(strings.TrimSuffix(address, ":0"), func(t *testing.T) {
			t.Parallel()
			o := Options{RingDir: filepath.Join(t.TempDir(), strings.Repeat("longer-than-any-address-of-a-socket/", 4))}
			at, said := serving(t, o, address)
			dial := func() net.Conn {
				t.Helper()
				c, err := net.Dial("tcp", at)
				if path, socket := strings.CutPrefix(at, unixScheme); socket {
					c, err = o.dialUnix(context.Background(), path)
				}

				if err != nil {
					t.Fatal(err)
				}

				t.Cleanup(func() { c.Close() })
				return c
			}
			var silent []net.Conn
			for range maxPeerConns {
				silent = append(silent, dial())
			}

			for range 10 * maxPeerConns {
				c := dial()
				closed(t, c)
				c.Close()
			}

			said.until(t, "connections to the switch refused")
			for _, c := range silent {
				closed(t, c)
				c.Close()
			}

			if err := get(t, o, at); err != nil {
				t.Errorf("after they were closed: %v", err)
			}
		})
	}
}

// TestSocketFile: what is at the socket's place, and what becomes of it.
func TestSocketFile(t *testing.T) {
	in := func(t *testing.T) (Options, string) {
		o := Options{RingDir: filepath.Join(t.TempDir(), "run")}
		if err := os.Mkdir(o.RingDir, 0o755); err != nil {
			t.Fatal(err)
		}

		return o, filepath.Join(o.RingDir, socketName)
	}
	t.Run("stale", func(t *testing.T) {
		o, path := in(t)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}

		l.SetUnlinkOnClose(false)
		l.Close()
		at, _ := serving(t, o, Default)
		if err := get(t, o, at); err != nil {
			t.Error(err)
		}
	})
	t.Run("served", func(t *testing.T) {
		o, _ := in(t)
		at, _ := serving(t, o, Default)
		if _, _, err := o.listenUnix(strings.TrimPrefix(at, unixScheme)); err == nil || !strings.Contains(err.Error(), "another agent") {
			t.Errorf("listened beside another: %v", err)
		}

		if err := get(t, o, at); err != nil {
			t.Error(err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		o, path := in(t)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}

		if _, _, err := o.listenUnix(path); err == nil || !strings.Contains(err.Error(), "no socket") {
			t.Errorf("replaced a file: %v", err)
		}

		if err := get(t, o, unixScheme+path); err == nil || !strings.Contains(err.Error(), "no socket") {
			t.Errorf("called a file: %v", err)
		}
	})
	t.Run("a symlink", func(t *testing.T) {
		o, path := in(t)
		there, _ := in(t)
		at, _ := serving(t, there, Default)
		if err := os.Symlink(strings.TrimPrefix(at, unixScheme), path); err != nil {
			t.Fatal(err)
		}

		if _, _, err := o.listenUnix(path); err == nil || !strings.Contains(err.Error(), "no socket") {
			t.Errorf("replaced a symlink: %v", err)
		}

		if err := get(t, o, unixScheme+path); err == nil || !strings.Contains(err.Error(), "no socket") {
			t.Errorf("followed a symlink: %v", err)
		}
	})
	t.Run("a directory that is a symlink", func(t *testing.T) {
		there, _ := in(t)
		serving(t, there, Default)
		o := Options{RingDir: filepath.Join(t.TempDir(), "link")}
		if err := os.Symlink(there.RingDir, o.RingDir); err != nil {
			t.Fatal(err)
		}

		at, _ := o.Parse(Default)
		if _, _, err := o.listenUnix(strings.TrimPrefix(at, unixScheme)); err == nil {
			t.Error("followed a symlink")
		}

		if err := get(t, o, at); err == nil {
			t.Error("followed a symlink")
		}
	})
	t.Run("gone at the end", func(t *testing.T) {
		o, path := in(t)
		t.Run("", func(t *testing.T) { serving(t, o, Default) })
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left behind: %v", err)
		}

		if err := get(t, o, unixScheme+path); err == nil || !strings.Contains(err.Error(), "no agent listens at "+path) {
			t.Errorf("no agent: %v", err)
		}
	})
}
