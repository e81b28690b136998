package drain

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

const (
	// quiet is the time between two lines about one thing: a user's folders, or what
	// goes wrong in passes.
	quiet = time.Minute
	// mostSaid bounds what is remembered of what was said, and mostLines the lines about
	// folders in a quiet: anybody can make folders, under as many users as he has.
	mostSaid  = 4096
	mostLines = 8
	// mostErrors bounds the errors of one pass that are told one by one.
	mostErrors = 4
)

// say says once that a user's rings of a job are not drained. What comes while it must
// be quiet is said when the folder is tried again.
func (d *Drain) say(uid uint32, job string, now time.Time) {
	key := fmt.Sprint(uid, "/", job)
	if d.said[key] || now.Before(d.quietTill[uid]) || len(d.lines) == mostLines && now.Sub(d.lines[0]) < quiet {
		return
	}

	if d.said == nil || len(d.said) >= mostSaid {
		d.said, d.quietTill = make(map[string]bool), make(map[uint32]time.Time)
	}

	if d.said[key], d.quietTill[uid] = true, now.Add(quiet); len(d.lines) == mostLines {
		d.lines = d.lines[1:]
	}

	d.lines = append(d.lines, now)
	about := []any{"uid", uid, "advice", fmt.Sprintf("--trust-uid %d, if its processes are trainers of yours", uid)}
	if job != "" {
		about = append(about, "job", job)
	}

	d.o.Logger.Warn("drain: rings of a user who is not trusted are not drained", about...)
}

// joinFirst joins errors, the first ones in full.
func joinFirst(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if n := len(errs) - mostErrors; n > 1 {
		errs = append(errs[:mostErrors:mostErrors], fmt.Errorf("and %d more", n))
	}

	return errors.Join(errs...)
}

// throttle logs what goes wrong in passes: the first of it at once, then a line a
// minute at most.
type throttle struct {
	at    time.Time
	said  bool // and it goes on
	muted int
}

// log says an error of a pass, nil for a pass in which nothing went wrong. After the first of
// those behind a line it says that the drain goes on.
func (t *throttle) log(l *slog.Logger, now time.Time, err error) {
	switch {
	case err == nil:
		if t.said {
			l.Info("drain goes on")
		}

		t.said = false
	case !t.at.IsZero() && now.Sub(t.at) < quiet:
		t.muted++
	default:
		about := []any{"cause", strings.TrimSpace(err.Error())}
		if t.muted > 0 {
			about = append(about, "passes_like_it", t.muted)
		}

		l.Warn("drain", about...)
		t.at, t.said, t.muted = now, true, 0
	}
}
