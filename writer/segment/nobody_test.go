package segment

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// asNobody runs f on a thread whose file system user is nobody, when the test runs
// as root: permissions mean nothing to root.
func asNobody[T any](t *testing.T, f func() (T, error)) (v T, err error) {
	t.Helper()
	if os.Geteuid() != 0 {
		return f()
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, e := unix.SetfsuidRetUid(65534); e != nil {
			err = e
			return
		}

		v, err = f()
	}()
	<-done
	return v, err
}
