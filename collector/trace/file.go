package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/laggard-dev/laggard/schemas/spelling"
)

const (
	// fileLimit bounds a switch file, bytes; TaskD's limit.
	fileLimit = 1 << 20
	// poll is how often a switch file is read when nobody hints at a change.
	poll = time.Second
	// sayAgain is the pause between two reports of the same problem.
	sayAgain = 30 * time.Second
)

// ParseFile reads TaskD's switch file, a JSON object of the five words, and
// collapses it as TaskD does: the four light kinds are off only when all five
// words are exactly "off", Communication is on when its word is. So a missing word
// leaves the light kinds on, and a missing CommunicationOperator is off: a file
// that was written for TaskD must not turn the heavy kind on. Words that are none of the five are reported and otherwise as
// if they were not there. An error means that the state must stay as it is: the
// file is half-written or holds a value that is neither "on" nor "off".
func ParseFile(b []byte) (s State, problems []error, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	var values map[string]json.RawMessage
	if err := d.Decode(&values); err != nil {
		return State{}, nil, fmt.Errorf("parse switch: not a JSON object: %w", err)
	}

	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return State{}, nil, errors.New("parse switch: there is more after the JSON object")
	}

	if values == nil {
		return State{}, nil, errors.New("parse switch: null is not a JSON object")
	}

	offs, communication := 0, false // words that are off; whether it is on
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(allWords, name) {
			problems = append(problems, problem(name, "", ruleKnown, spelling.Nearest(name, allWords)))
			continue
		}

		var v string
		if json.Unmarshal(values[name], &v) != nil {
			v = string(values[name])
		}

		errs = append(errs, checkValue(name, v))
		if v == off {
			offs++
		}

		communication = communication || name == communicationOperator && v == on
	}

	if err := errors.Join(errs...); err != nil {
		return State{}, problems, fmt.Errorf("parse switch: %w", err)
	}

	return State{offs < len(allWords), communication}, problems, nil
}

// readFile reads a switch file. The path may go through symbolic links: a
// mounted ConfigMap does. What is no regular file is not opened, as opening a FIFO
// would wait for its other end.
func readFile(path string) (State, []error, error) {
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("read switch %s: not a regular file", path)
	}

	if err != nil {
		return State{}, nil, err
	}

	f, err := os.Open(path)
	if err != nil {
		return State{}, nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, fileLimit+1))
	if err != nil {
		return State{}, nil, err
	}

	if len(b) > fileLimit {
		return State{}, nil, fmt.Errorf("read switch %s: larger than %d bytes", path, fileLimit)
	}

	s, problems, err := ParseFile(b)
	if err != nil {
		err = fmt.Errorf("read switch %s: %w", path, err)
	}

	return s, problems, err
}

// Follower follows a switch file.
type Follower struct {
	Path string
	// Set is called with each state that differs from the one before, and with
	// the first.
	Set func(State) error
	// Logger gets what is wrong with the file, not more often than every half
	// minute; nil: silent.
	Logger *slog.Logger

	taken *State    // by Set, the last one; nil none yet
	said  string    // the last problem that was logged
	at    time.Time // then
}

// Run reads the file every second, and at once when its directory hints at a
// change, until the context ends. It returns nil then.
func (f *Follower) Run(ctx context.Context) error {
	// A ConfigMap is swapped by renaming a link in the directory that the file stands in.
	events, stop := watch(filepath.Dir(f.Path))
	defer stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		f.look(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		case <-tick.C:
		}
	}
}

// watch hints at changes in a directory until stop is called; where no inotify is left it
// is silent.
func watch(dir string) (events <-chan fsnotify.Event, stop func()) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, func() {}
	}

	if err := w.Add(dir); err != nil {
		w.Close()
		return nil, func() {}
	}

	return w.Events, func() { w.Close() }
}

// look reads the file once and sets what it says. A file that is not there
// changes nothing.
func (f *Follower) look(now time.Time) {
	s, problems, err := readFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}

	f.say(now, errors.Join(append([]error{err}, problems...)...))
	if err != nil {
		return
	}

	if f.taken != nil && s == *f.taken {
		return
	}

	if err := f.Set(s); err != nil {
		f.say(now, fmt.Errorf("switch to %s: %w", s, err))
		return // the next look tries again
	}

	f.taken = &s
}

// say logs a problem, the same one not again within sayAgain.
func (f *Follower) say(now time.Time, err error) {
	if err == nil || f.Logger == nil || err.Error() == f.said && now.Sub(f.at) < sayAgain {
		return
	}

	f.said, f.at = err.Error(), now
	f.Logger.Warn("switch file", "file", f.Path, "cause", err)
}
