package native_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/laggard-dev/laggard/collector/internal/ringtest"
)

// TestBusErrorsOfOthers: a SIGBUS that is not of a ring does what it does without the
// recorder: it ends the program, goes to the program's own handler, or to nobody.
func TestBusErrorsOfOthers(t *testing.T) {
	const wentOn = "went on, no error\n"
	for _, c := range []struct {
		way, before string
		killed      bool
		out         string
		code        int
	}{
		{"fault", "default", true, "", 0},
		{"fault", "ignored", true, "", 0}, // the kernel ends who ignores a fault
		{"fault", "handled", false, "handled 2\n", 7},
		{"sent", "default", true, "", 0},
		{"sent", "ignored", false, wentOn, 0},
		{"sent", "handled", false, "handled 0\n" + wentOn, 0},
		{"early", "default", true, "", 0},
		{"early", "ignored", false, wentOn, 0},
		{"early", "handled", false, "handled 5\n" + wentOn, 0},
	} {
		t.Run(c.way+" "+c.before, func(t *testing.T) {
			cmd := command(t, ringtest.Driver(t), ringtest.Shared(t), "bus", c.way, c.before)
			var out bytes.Buffer
			cmd.Stdout = &out
			err := cmd.Run()
			var ended *exec.ExitError
			if err != nil && !errors.As(err, &ended) {
				t.Fatal(err)
			}

			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if c.killed != (status.Signaled() && status.Signal() == syscall.SIGBUS) || !c.killed && status.ExitStatus() != c.code || out.String() != c.out {
				t.Errorf("%v, said %q; want killed by SIGBUS %v, exit %d, %q", cmd.ProcessState, out.String(), c.killed, c.code, c.out)
			}
		})
	}

	// As a shell tells of it.
	sh := exec.Command("sh", "-c", `"$0" bus sent default; echo $?`, ringtest.Driver(t))
	sh.Env = command(t, "", ringtest.Shared(t)).Env
	if out, err := sh.Output(); err != nil || string(out) != fmt.Sprintln(128+int(syscall.SIGBUS)) {
		t.Errorf("the shell says %q, %v", out, err)
	}
}
