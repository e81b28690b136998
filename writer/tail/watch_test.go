package tail

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// limited is the name of the limit that a child process of these tests lives under.
const limited = "LAGGARD_TEST_LIMIT"

// TestNoNotifications runs in a user namespace of its own without any inotify
// instance, then without any watch, and with 64 file descriptors: rescanning finds
// everything, and it is said once. R25.
func TestNoNotifications(t *testing.T) {
	if limit := os.Getenv(limited); limit != "" {
		underLimit(t, limit)
		return
	}

	for _, limit := range []string{"max_inotify_instances", "max_inotify_watches"} {
		t.Run(limit, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestNoNotifications$", "-test.v")
			cmd.Env = append(os.Environ(), limited+"="+limit)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("looked under "+limit)) {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

func underLimit(t *testing.T, limit string) {
	if err := os.WriteFile("/proc/sys/user/"+limit, []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}

	d := newDisk(t, Options{Files: 16})
	// As little as the test itself needs beside 16 segments.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		t.Fatal(err)
	}

	const ranks, segments = 100, 10
	for r := range ranks {
		dir := filepath.Join(d.root, "job", fmt.Sprint(r))
		d.must(os.MkdirAll(dir, 0o755))
		for s := range segments {
			d.must(os.WriteFile(filepath.Join(dir, fmt.Sprint(100+s)), fmt.Appendf(nil, "%d-%d\n", r, s), 0o644))
		}
	}

	var log journal
	w := NewWatcher(log.logger())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	hints := make(chan struct{}, 1)
	go func() {
		done <- w.Run(ctx, func(bool) {
			select {
			case hints <- struct{}{}:
			default:
			}
		})
	}()
	for range 3 {
		streams, err := d.tree.Scan()
		d.must(err)
		w.Watch(d.root, streams, func(*Stream) bool { return false })
		d.look()
	}

	cancel()
	d.must(<-done)
	if len(d.got) != ranks*segments {
		t.Fatalf("%d lines read, want %d", len(d.got), ranks*segments)
	}

	if n := strings.Count(log.String(), "looking every second instead"); n != 1 {
		t.Fatalf("said %d times:\n%s", n, &log)
	}

	t.Log("looked under " + limit)
}

// TestNotificationsOverflow lets the kernel's queue overflow before anybody reads
// it (IN_Q_OVERFLOW): that is a hint as well, and the scan finds everything. R25.
func TestNotificationsOverflow(t *testing.T) {
	queue := 16384
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events"); err == nil {
		fmt.Sscan(string(text), &queue)
	}

	d := newDisk(t, Options{})
	d.write("100", "a\n")
	d.write("101", "b\n")
	var log journal
	w := NewWatcher(log.logger())
	streams, err := d.tree.Scan()
	d.must(err)
	w.Watch(d.root, streams, func(*Stream) bool { return false })
	one, two := d.path("100"), d.path("101")
	for i := range queue + 8192 { // more than the reader takes at once; events of one file in a row would become one
		at := time.Unix(int64(i), 0)
		d.must(os.Chtimes([]string{one, two}[i%2], at, at))
	}

	d.write("102", "c\n")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	hints := make(chan struct{}, 1)
	go func() {
		done <- w.Run(ctx, func(bool) {
			select {
			case hints <- struct{}{}:
			default:
			}
		})
	}()
	<-hints
	deadline := time.After(3 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(log.String(), "overflow") {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the queue of %d events never overflowed:\n%s", queue, &log)
		}
	}

	d.look()
	cancel()
	d.must(<-done)
	d.want("100 0 a", "101 0 b", "102 0 c")
}

// TestWatcherLeavesWhatIsTold: a directory of which somebody else tells is not watched,
// nor any longer; the one above it is. Of the others a write is told from the rest.
func TestWatcherLeavesWhatIsTold(t *testing.T) {
	d := newDisk(t, Options{})
	d.write("100", "a\n")
	var log journal
	w := NewWatcher(log.logger())
	streams, err := d.tree.Scan()
	d.must(err)
	own := false
	watch := func() { w.Watch(d.root, streams, func(*Stream) bool { return own }) }
	watch()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	hints := make(chan bool, 16)
	go func() { done <- w.Run(ctx, func(grown bool) { hints <- grown }) }()
	d.add("100", "b\n")
	if !<-hints {
		t.Error("a write is told as another change")
	}

	d.write("101", "c\n")
	if <-hints {
		t.Error("a new segment is told as a write")
	}

	<-hints // its content
	own = true
	watch()
	if w.known[d.dir] || !w.known[filepath.Dir(d.dir)] || !w.known[d.root] {
		t.Errorf("watched: %v", w.known)
	}

	cancel()
	d.must(<-done)
}
