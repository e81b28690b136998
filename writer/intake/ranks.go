package intake

import (
	"errors"
	"fmt"
	"os"

	"github.com/laggard-dev/laggard/writer/tail"
)

// scan looks which ranks there are and which of them are ours.
func (f *Follower) scan() []*tail.Stream {
	streams, err := f.e.tree.Scan()
	f.problem = ""
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.problem = err.Error()
	}

	seen := map[string]bool{}
	for _, s := range streams {
		seen[s.Dir.Path] = true
		if err := f.adopt(s); err != nil {
			f.problem = err.Error()
		}
	}

	for path, m := range f.e.members {
		own := f.own(m.stream)
		if !seen[path] && err != nil && !errors.Is(err, os.ErrNotExist) {
			continue // it could not be listed: that is not to say that it is gone
		}

		if seen[path] && (own || !m.lease.Claimed()) {
			continue
		}

		if seen[path] && (m.rows != nil || m.out.Pending() > 0 || m.stream.Releasing()) {
			continue // handed over when what is on its way has arrived
		}

		if err := f.leave(m); err != nil {
			f.problem = err.Error()
		}
	}

	f.note()
	return streams
}

// own reports whether the rank's rings are drained here.
func (f *Follower) own(s *tail.Stream) bool {
	return f.o.Own != nil && f.o.Own(s.Dir.RankID)
}

// adopt makes a stream ours when its lease is to be had. One that is refused is asked for again at
// each look; with its claim, where the rank is ours: whoever ships it sees that and lets go.
func (f *Follower) adopt(s *tail.Stream) error {
	path := s.Dir.Path
	if f.e.members[path] != nil {
		return nil
	}

	l := f.waiting[path]
	var err error
	if l == nil {
		if f.o.Ranks > 0 && f.holds() >= f.o.Ranks {
			if !f.own(s) && tail.Leased(path) {
				return nil
			}

			return fmt.Errorf("take rank directory %s: it waits for its turn, the limit of open files allows %d at once; raise it (ulimit -n)", path, f.o.Ranks)
		}

		l, err = tail.TakeLease(path, f.own(s))
	} else {
		err = l.Retry()
	}

	if err != nil {
		f.waiting[path] = l
		if errors.Is(err, tail.ErrLeased) {
			return nil
		}

		return err
	}

	delete(f.waiting, path)
	if !f.own(s) && l.Claimed() {
		return l.Close() // its own agent is about to take it
	}

	from := f.cursor[s.Dir.RankID]
	m, err := f.e.join(s, l, from)
	if err != nil || m == nil { // nil: the position was of no use, next time without
		delete(f.cursor, s.Dir.RankID)
		return errors.Join(err, l.Close())
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[path] = s
	f.shipped[path] = m.from
	return nil
}

// holds is how many rank directories have files of ours open.
func (f *Follower) holds() int {
	n := len(f.e.members)
	for _, l := range f.waiting {
		if l.Claims() {
			n++
		}
	}

	return n
}

// leave gives a directory up, with its place in the cursor up to date. What of it is not
// acknowledged is the next one's.
func (f *Follower) leave(m *member) error {
	f.acknowledge(m)
	f.mu.Lock()
	delete(f.streams, m.stream.Dir.Path)
	delete(f.shipped, m.stream.Dir.Path)
	f.mu.Unlock()
	// The tree's stream is at its end; whoever takes the directory next begins with
	// a new one.
	f.e.tree.Forget(m.stream)
	delete(f.e.members, m.stream.Dir.Path)
	return m.lease.Close()
}
