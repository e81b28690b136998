package chtest

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// process is a server's process; it ends with the test's.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has been waited for
}

// start starts a command line in a folder; what it says goes to log.
func (p *process) start(t testing.TB, what, dir string, log *os.File, line []string) {
	t.Helper()
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", what, err)
	}

	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	p.cmd, p.done = cmd, done
}

// Signal sends a signal, such as SIGSTOP and SIGCONT, to a process that runs.
func (p *process) Signal(sig syscall.Signal) {
	if err := p.cmd.Process.Signal(sig); err != nil {
		panic("signal: " + err.Error()) // it is not waited for before done is closed, so it is there
	}
}

// Kill kills the process (SIGKILL) and waits until it is gone.
func (p *process) Kill() {
	if p.cmd == nil {
		return
	}

	_ = p.cmd.Process.Kill()
	<-p.done
	p.cmd = nil
}
