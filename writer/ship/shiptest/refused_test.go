package shiptest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/ship"
	"github.com/laggard-dev/laggard/writer/ship/shiptest"
)

// alarm is how soon a store that fails must show, and go on after it was put right.
const alarm = 30 * time.Second

// journal is a log that several goroutines write and a test reads.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// trouble ships 500 steps, lets harm be done, puts 500 more, waits for the alarm,
// lets it be mended and waits for the rest: without a restart, each row once.
type trouble struct {
	harm, mend func()
	class      string // of the failure
	word       string // that its text must hold
	secret     string // that no text may hold
}

func (c trouble) run(t *testing.T, sink ship.Sink) *ship.Shipper {
	t.Helper()
	var log journal
	o := ship.Options{Flush: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)), Jitter: func() float64 { return 0.02 }}
	s := shipping(t, sink, o, func(ctx context.Context, s *ship.Shipper) {
		ctx, cancel := context.WithTimeout(ctx, 4*alarm)
		defer cancel()
		st := ship.NewStream("0")
		put := func(from int) {
			t.Helper()
			if err := s.Put(ctx, st, shiptest.Rows("j", 0, from, 500), from); err != nil {
				t.Fatal(err)
			}
		}
		put(0)
		if err := s.Flush(ctx); err != nil {
			t.Fatalf("before anything happened: %v; %+v", err, s.Stats())
		}

		c.harm()
		put(500)
		await(t, alarm, func() bool { return s.Stats().Failing == c.class && strings.Contains(s.Stats().LastError, c.word) }, func() string { return s.Stats().LastError })
		c.mend()
		if err := s.Flush(ctx); err != nil {
			t.Fatalf("after it was put right: %v; %+v", err, s.Stats())
		}
	})
	st := s.Stats()
	if st.Failing != "" || !strings.Contains(log.String(), "recovered") {
		t.Errorf("no recovery: %+v\n%s", st, &log)
	}

	for table, n := range st.Tables {
		if n.Poisoned != 0 {
			t.Errorf("%d rows of %s were taken for poison", n.Poisoned, table)
		}
	}

	if c.secret != "" && strings.Contains(log.String(), c.secret) {
		t.Errorf("the log holds a secret:\n%s", &log)
	}

	return s
}

// await polls until ok, at most for so long.
func await(t *testing.T, most time.Duration, ok func() bool, what func() string) {
	t.Helper()
	deadline := time.After(most)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", most, what())
		}
	}
}

// TestUnreachable: a store that can't be reached, or must not be talked to, costs
// no row; the alarm shows, and shipping goes on without a restart. R11.
func TestUnreachable(t *testing.T) {
	server := chtest.StartWith(t, chtest.Options{Password: "right"})
	password := filepath.Join(t.TempDir(), "password")
	say := func(text string) {
		t.Helper()
		if err := os.WriteFile(password, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	say("right")
	restart := func() { server.Kill(); server.Up() }
	t.Run("ConnectionRefused", func(t *testing.T) {
		db := server.Database()
		trouble{harm: server.Kill, mend: server.Up, class: "transient", word: "connection refused"}.run(t, open(t, server.Store(db)+"?password_file="+password))
		exactly(t, server.Count, db, 1, 1000)
	})
	t.Run("NameNotFound", func(t *testing.T) {
		db := server.Database()
		names := newNames(t)
		store := strings.Replace(server.Store(db), "127.0.0.1", "store.test", 1)
		names.known.Store(true)
		trouble{
			harm: func() { names.known.Store(false); restart() }, mend: func() { names.known.Store(true) },
			class: "transient", word: "correct the host",
		}.run(t, open(t, store+"?password_file="+password))
		exactly(t, server.Count, db, 1, 1000)
	})
	t.Run("CertificateExpired", func(t *testing.T) {
		db := server.Database()
		ca := newAuthority(t)
		front := newFront(t, server.Addr(), ca.certificate(t, time.Now().Add(time.Hour)))
		trouble{
			harm:  func() { front.present(ca.certificate(t, time.Now().Add(-time.Hour))) },
			mend:  func() { front.present(ca.certificate(t, time.Now().Add(time.Hour))) },
			class: "refused", word: "expired",
		}.run(t, open(t, front.store(db)+"?secure=true&ca="+ca.file(t)+"&password_file="+password))
		exactly(t, server.Count, db, 1, 1000)
	})
	t.Run("WrongAuthority", func(t *testing.T) {
		db := server.Database()
		ours, other := newAuthority(t), newAuthority(t)
		file := ours.file(t)
		front := newFront(t, server.Addr(), ours.certificate(t, time.Now().Add(time.Hour)))
		trouble{
			harm:  func() { front.present(other.certificate(t, time.Now().Add(time.Hour))) },
			mend:  func() { other.write(t, file) }, // the new authority's certificate is handed out
			class: "refused", word: "unknown authority",
		}.run(t, open(t, front.store(db)+"?secure=true&ca="+file+"&password_file="+password))
		exactly(t, server.Count, db, 1, 1000)
	})
	t.Run("WrongPassword", func(t *testing.T) {
		db := server.Database()
		trouble{
			harm: func() { say("wrong-secret"); restart() }, mend: func() { say("right") },
			class: "refused", word: "password_file", secret: "wrong-secret",
		}.run(t, open(t, server.Store(db)+"?password_file="+password))
		exactly(t, server.Count, db, 1, 1000)
	})
	t.Run("RotatedPassword", func(t *testing.T) {
		db := server.Database()
		trouble{
			harm: func() { server.SetPassword("rotated"); restart() }, mend: func() { say("rotated") },
			class: "refused", word: "password_file", secret: "rotated",
		}.run(t, open(t, server.Store(db)+"?password_file="+password))
		exactly(t, server.Count, db, 1, 1000)
	})
}

// names is a name server that knows one name, sometimes.
type names struct{ known atomic.Bool }

// newNames makes this process ask it until the test is over.
func newNames(t *testing.T) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	n := &names{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}

			_, _ = conn.WriteTo(n.answer(buf[:size]), from)
		}
	}()
	old := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = old
		conn.Close()
		<-done
	})
	return n
}

// answer is 127.0.0.1 for a question of type A, nothing for another, or "no such
// name" (RFC 1035).
func (n *names) answer(question []byte) []byte {
	const header = 12
	end := header
	for end < len(question) && question[end] != 0 {
		end += int(question[end]) + 1
	}

	end += 5 // the root label, type and class
	if len(question) < end {
		return nil
	}

	reply := append([]byte(nil), question[:end]...)
	reply[2], reply[3] = 0x81, 0x80
	clear(reply[6:header])
	if !n.known.Load() {
		reply[3] |= 3
		return reply
	}

	if binary.BigEndian.Uint16(question[end-4:]) == 1 {
		reply[7] = 1
		reply = append(reply, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}

	return reply
}
