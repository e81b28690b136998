package chtest

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"
)

// ProcessorTime is what a process has used so far, in its own code and in the kernel's, to 10 ms:
// USER_HZ is 100 on every Linux.
func ProcessorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}

	// utime and stime are the 14th and 15th field (proc(5)). The second, a name in parentheses, may
	// hold blanks.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var user, system int64
	if _, err := fmt.Sscan(string(fields[11])+" "+string(fields[12]), &user, &system); err != nil {
		t.Fatalf("read processor time of process %d: %v", pid, err)
	}

	return time.Duration(user+system) * 10 * time.Millisecond
}

// Memory is a figure of /proc/PID/status, such as VmRSS, in KiB. It is an error when the process has
// ended.
func Memory(pid int, figure string) (kib int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}

	_, rest, _ := bytes.Cut(status, []byte("\n"+figure+":"))
	if _, err := fmt.Sscan(string(rest), &kib); err != nil {
		return 0, fmt.Errorf("read %s of process %d: %w", figure, pid, err)
	}

	return kib, nil
}
