package chtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a server's process; it ends with the test's.
type process struct {
	mu   sync.Mutex
	cmd  *exec.Cmd     // guarded by mu; nil where it is not to run
	done chan struct{} // guarded by mu; closed when the process has been waited for
}

// start starts a command line in a folder; what it says goes to the file log in it. With
// again the process is started again that leaves by itself, restarts times at most.
func (p *process) start(t testing.TB, what, dir, log string, line []string, again func()) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.startLocked(dir, log, line); err != nil {
		t.Fatalf("start %s: %v", what, err)
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
			if err := p.startLocked(dir, log, line); err != nil {
				t.Errorf("start %s again: %v", what, err)
			}

			cmd, done = p.cmd, p.done
			p.mu.Unlock()
		}
	}(p.cmd, p.done)
}

// restarts is how often a process is started again that leaves by itself.
const restarts = 3

// startLocked starts the process. p.mu is held.
func (p *process) startLocked(dir, log string, line []string) error {
	said, err := os.OpenFile(filepath.Join(dir, log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, said, said
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

// await waits until the process answers on its port; said is what it says meanwhile.
func (p *process) await(t testing.TB, what, addr string, said func() string) {
	t.Helper()
	_, done := p.running()
	Eventually(t, what+" answers on "+addr, 2*time.Minute, func() error {
		select {
		case <-done:
			t.Fatalf("%s left at start:\n%s", what, said())
		default:
		}

		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			err = conn.Close()
		}

		if err != nil {
			err = fmt.Errorf("%w\n%s", err, said())
		}

		return err
	})
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
