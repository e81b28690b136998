package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sysCall is one system call of a traced process that touches a file below one of the
// tracer's roots.
type sysCall struct {
	name   string // write, pwrite, open, mkdir, fsync, truncate, rename, unlink
	path   string
	to     string // rename: the new path
	flags  int    // open
	offset int64  // pwrite, truncate (the new size)
	data   []byte // write, pwrite: what was written, only after the call
	done   bool   // after the call; else before it
}

// changes reports whether the call changes anything on the disk or makes a change
// durable: the instants that a kill or a loss of power can come between.
func (c *sysCall) changes() bool {
	return c.name != "open" || c.flags&(unix.O_CREAT|unix.O_TRUNC) != 0
}

// verdicts of a tracer's look function: anything positive is an errno that the call
// fails with instead of being made.
const (
	goOn = 0
	kill = -1
)

// tracer runs a program under ptrace(2) and shows every system call of it that touches
// files below the roots, before and after it is made: so a test can kill the program
// between any two of them, let any of them fail, and knows what was written when. No
// label in the program is needed, and none can be forgotten.
type tracer struct {
	roots []string
	look  func(*sysCall) int
	// enough, when it is set, tells that the program has done what it was started for:
	// then it gets a SIGTERM.
	enough func() bool

	pid     int
	pending map[int]*sysCall // by thread: the call that it is in
	failing map[int]int      // by thread: the errno it is to see
	inside  map[int]bool     // by thread: between entry and exit
}

// run runs a program to its end and returns how it ended. Output goes to the file.
func (x *tracer) run(t *testing.T, out *os.File, env []string, argv ...string) syscall.WaitStatus {
	t.Helper()
	// The thread that starts the program is its tracer, and only it may ask.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// In a group of its own, it is told from the children of other tests.
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true},
	})
	if err != nil {
		t.Fatalf("start %s under ptrace: %v", argv[0], err)
	}

	x.pid, x.pending, x.failing, x.inside = pid, map[int]*sysCall{}, map[int]int{}, map[int]bool{}
	ended := make(chan struct{})
	defer close(ended)
	go x.end(pid, ended)
	var ws syscall.WaitStatus
	if _, err := wait4(pid, &ws); err != nil {
		t.Fatalf("wait for %s: %v", argv[0], err)
	}

	const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL
	if err := syscall.PtraceSetOptions(pid, options); err != nil {
		t.Fatalf("trace %s: %v", argv[0], err)
	}

	resume(pid, 0)
	for {
		tid, err := wait4(-pid, &ws)
		if err != nil {
			t.Fatalf("wait for %s: %v", argv[0], err)
		}

		switch {
		case ws.Exited() || ws.Signaled():
			if tid == pid {
				return ws
			}

			continue
		case ws.StopSignal() == syscall.SIGTRAP|0x80:
			x.stop(tid)
			resume(tid, 0)
		case ws.StopSignal() == syscall.SIGTRAP || ws.StopSignal() == syscall.SIGSTOP: // a new thread
			resume(tid, 0)
		default:
			resume(tid, int(ws.StopSignal()))
		}
	}
}

// end ends the program when it has done enough, or has taken too long.
func (x *tracer) end(pid int, ended <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case <-ended:
			return
		case <-limit.C:
			syscall.Kill(pid, syscall.SIGKILL)
			return
		case <-tick.C:
			if x.enough != nil && x.enough() {
				syscall.Kill(pid, syscall.SIGTERM)
				return
			}
		}
	}
}

// wait4 waits for a tracee of this thread, by its number or by that of its group, negated.
func wait4(pid int, ws *syscall.WaitStatus) (int, error) {
	for {
		got, err := syscall.Wait4(pid, ws, unix.WALL|unix.WNOTHREAD, nil)
		if !errors.Is(err, syscall.EINTR) {
			return got, err
		}
	}
}

// resume lets a thread run to its next stop. One that was killed can't be resumed.
func resume(tid, signal int) { _ = syscall.PtraceSyscall(tid, signal) }

// stop handles the entry or the exit of a system call.
func (x *tracer) stop(tid int) {
	var regs syscall.PtraceRegs
	if syscall.PtraceGetRegs(tid, &regs) != nil {
		return // killed
	}

	x.inside[tid] = !x.inside[tid]
	if x.inside[tid] {
		x.enter(tid, &regs)
		return
	}

	if errno := x.failing[tid]; errno != 0 {
		delete(x.failing, tid)
		regs.Rax = uint64(-int64(errno))
		_ = syscall.PtraceSetRegs(tid, &regs)
		return
	}

	c := x.pending[tid]
	delete(x.pending, tid)
	if c == nil || int64(regs.Rax) < 0 {
		return
	}

	if c.name == "write" || c.name == "pwrite" {
		c.data = x.memory(uintptr(regs.Rsi), int(regs.Rax))
	}

	c.done = true
	if x.look(c) == kill {
		syscall.Kill(x.pid, syscall.SIGKILL)
	}
}

func (x *tracer) enter(tid int, regs *syscall.PtraceRegs) {
	c := x.decode(tid, regs)
	if c == nil {
		return
	}

	switch verdict := x.look(c); verdict {
	case goOn:
		x.pending[tid] = c
	case kill:
		syscall.Kill(x.pid, syscall.SIGKILL)
	default:
		regs.Orig_rax = ^uint64(0) // no such call: nothing is done
		_ = syscall.PtraceSetRegs(tid, regs)
		x.failing[tid] = verdict
	}
}

// decode returns the call that a thread is about to make, nil for one that is of no
// interest.
func (x *tracer) decode(tid int, r *syscall.PtraceRegs) *sysCall {
	c := &sysCall{}
	at := func(fd, name uint64) string { return x.resolve(int(int32(fd)), x.text(uintptr(name))) }
	switch r.Orig_rax {
	case unix.SYS_WRITE:
		c.name, c.path = "write", x.file(int(r.Rdi))
	case unix.SYS_PWRITE64:
		c.name, c.path, c.offset = "pwrite", x.file(int(r.Rdi)), int64(r.R10)
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		c.name, c.path = "fsync", x.file(int(r.Rdi))
	case unix.SYS_FTRUNCATE:
		c.name, c.path, c.offset = "truncate", x.file(int(r.Rdi)), int64(r.Rsi)
	case unix.SYS_OPENAT:
		c.name, c.path, c.flags = "open", at(r.Rdi, r.Rsi), int(r.Rdx)
	case unix.SYS_MKDIRAT:
		c.name, c.path = "mkdir", at(r.Rdi, r.Rsi)
	case unix.SYS_UNLINKAT:
		c.name, c.path = "unlink", at(r.Rdi, r.Rsi)
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		c.name, c.path, c.to = "rename", at(r.Rdi, r.Rsi), at(r.Rdx, r.R10)
	default:
		return nil
	}

	for _, root := range x.roots {
		if c.path == root || strings.HasPrefix(c.path, root+"/") {
			return c
		}
	}

	return nil
}

func (x *tracer) file(fd int) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", x.pid, fd))
	return strings.TrimSuffix(path, " (deleted)")
}

func (x *tracer) resolve(dir int, name string) string {
	if filepath.IsAbs(name) || dir == unix.AT_FDCWD {
		return filepath.Clean(name)
	}

	return filepath.Join(x.file(dir), name)
}

// text reads a string of the traced process.
func (x *tracer) text(at uintptr) string {
	const page = 4096
	var s []byte
	for len(s) < page {
		part := x.memory(at, page-int(at%page)) // never over the end of a mapping
		if len(part) == 0 {
			break
		}

		for i, c := range part {
			if c == 0 {
				return string(append(s, part[:i]...))
			}
		}

		s = append(s, part...)
		at += uintptr(len(part))
	}

	return string(s)
}

// memory copies n bytes of the traced process.
func (x *tracer) memory(at uintptr, n int) []byte {
	if n <= 0 {
		return nil
	}

	b := make([]byte, n)
	local := unix.Iovec{Base: (*byte)(unsafe.Pointer(&b[0]))}
	local.SetLen(n)
	got, err := unix.ProcessVMReadv(x.pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: at, Len: n}}, 0)
	if err != nil {
		return nil
	}

	return b[:got]
}
