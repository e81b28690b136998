package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/writer/ship"
)

// check is one thing that the agent needs for its work.
type check struct {
	name string
	err  func() error // nil: it is well; else the reason and what to do
}

// checks are all of them, told apart: a trainer waits for rings, not for a store.
func (a *agent) checks() []check {
	all := []check{{"rings", a.drain.Ready}, {"disk", diskReady(filepath.Join(a.o.Dir, ".laggard"))}}
	if a.follower != nil {
		all = append(all, check{"store", func() error { return storeReady(a.follower.Stats(), time.Now()) }})
	}

	return all
}

// ready answers GET /readyz with a line a check, `store: ok` or `store: <reason>; <what to do>`,
// and with 503 when one is not well.
func ready(checks ...check) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		status, text := http.StatusOK, ""
		for _, c := range checks {
			word := "ok"
			if err := c.err(); err != nil {
				status, word = http.StatusServiceUnavailable, err.Error()
			}

			text += c.name + ": " + word + "\n"
		}

		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}
}

// failingLong is how long a store that was reached may fail before it counts as not
// ready: a server that is restarted is no news.
const failingLong = 30 * time.Second

// storeReady tells what keeps rows from the store: it is tried at the start, then known
// from shipping.
func storeReady(s ship.Stats, now time.Time) error {
	switch {
	case s.Failing == "" && !s.Reached:
		return errors.New("not reached yet; wait")
	case s.Failing == "", s.Reached && s.Failing != ship.Refused.String() && now.Sub(s.FailingAt) <= failingLong:
		return nil
	}

	return fmt.Errorf("%s since %s: %s", s.Failing, s.FailingAt.UTC().Format(time.RFC3339), s.LastError)
}

// diskPatience is how long a write may take: others wait for it no longer.
const diskPatience = 5 * time.Second

// diskReady returns what finds out whether a directory takes bytes, by writing some. One
// look writes at a time: a volume that hangs holds up one request, not each.
func diskReady(dir string) func() error {
	var began atomic.Int64 // when the write under way began, 0 none
	return func() error {
		now := time.Now()
		if began.CompareAndSwap(0, now.UnixNano()) {
			defer began.Store(0)
			return tryWrite(dir)
		}

		since := began.Load()
		if since == 0 || now.Sub(time.Unix(0, since)) <= diskPatience {
			return nil // the other look tells, or has just told
		}

		return fmt.Errorf("%s: a write has not come back since %s; look at the volume", dir, time.Unix(0, since).UTC().Format(time.RFC3339))
	}
}

// tryWrite writes into a directory.
func tryWrite(dir string) error {
	if err := keep.Try(dir); err != nil {
		return fmt.Errorf("write into %s: %w; make room or lower --cap, and let uid %d write there", dir, err, os.Getuid())
	}

	return nil
}
