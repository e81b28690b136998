package chtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a server's process; it ends with the test's.
type process struct {
	t    testing.TB
	what string   // its name in messages
	dir  string   // of all its files; what it says is in stderr
	host string   // that it listens on
	port int      // that it answers on
	wrap []string // what it is run by

	mu   sync.Mutex
	cmd  *exec.Cmd     // guarded by mu; nil where it is not to run
	done chan struct{} // guarded by mu; closed when the process has been waited for
}

// start starts a command line in the folder. With again the process is started again that
// leaves by itself, restarts times at most.
func (p *process) start(again func(), line ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.startLocked(line); err != nil {
		p.t.Fatalf("start %s: %v", p.what, err)
	}

	if again == nil {
		return
	}

	go func(cmd *exec.Cmd, done <-chan struct{}) {
		for range restarts {
			<-done
			p.mu.Lock()
			if p.cmd != cmd { // ended by the test
				p.mu.Unlock()
				return
			}

			again()
			if err := p.startLocked(line); err != nil {
				p.t.Errorf("start %s again: %v", p.what, err)
			}

			cmd, done = p.cmd, p.done
			p.mu.Unlock()
		}
	}(p.cmd, p.done)
}

// restarts is how often a process is started again that leaves by itself.
const restarts = 3

// startLocked starts the process. p.mu is held.
func (p *process) startLocked(line []string) error {
	said, err := os.OpenFile(filepath.Join(p.dir, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := p.command(line...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}

	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	p.cmd, p.done = cmd, done
	return nil
}

// command is a command line in the process's folder, run by what the process is run by.
func (p *process) command(line ...string) *exec.Cmd {
	line = slices.Concat(p.wrap, line)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir = p.dir
	return cmd
}

// Addr is host:port.
func (p *process) Addr() string { return fmt.Sprintf("%s:%d", p.host, p.port) }

// Await waits until the process answers on its port.
func (p *process) Await() {
	p.t.Helper()
	_, done := p.running()
	Eventually(p.t, p.what+" answers on "+p.Addr(), 2*time.Minute, func() error {
		select {
		case <-done:
			p.t.Fatalf("%s left at start:\n%s", p.what, p.Log())
		default:
		}

		conn, err := net.DialTimeout("tcp", p.Addr(), time.Second)
		if err == nil {
			err = conn.Close()
		}

		if err != nil {
			err = fmt.Errorf("%w\n%s", err, p.Log())
		}

		return err
	})
}

// Log is the end of what the process said.
func (p *process) Log() string {
	var b bytes.Buffer
	for _, name := range []string{"stderr", "error.log"} { // the second is ClickHouse's
		text, _ := os.ReadFile(filepath.Join(p.dir, name))
		if len(text) > 4000 {
			text = text[len(text)-4000:]
		}

		fmt.Fprintf(&b, "%s:\n%s\n", name, text)
	}

	return b.String()
}

// running returns the process that is to run, nil without one, and when it ends.
func (p *process) running() (*exec.Cmd, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.done
}

// release is running, and from now on none is to run.
func (p *process) release() (*exec.Cmd, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := p.cmd
	p.cmd = nil
	return cmd, p.done
}

// Signal sends a signal, such as SIGSTOP and SIGCONT, to a process that runs.
func (p *process) Signal(sig syscall.Signal) {
	cmd, _ := p.running()
	if err := cmd.Process.Signal(sig); err != nil {
		panic("signal: " + err.Error()) // it is not waited for before done is closed, so it is there
	}
}

// Kill kills the process (SIGKILL) and waits until it is gone.
func (p *process) Kill() {
	cmd, done := p.release()
	if cmd == nil {
		return
	}

	_ = cmd.Process.Kill()
	<-done
}
