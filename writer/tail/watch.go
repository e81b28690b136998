package tail

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Watcher turns change notifications into hints. A machine without them (limits
// of 0, NFS) is no error: the rescan is the truth, it only comes a little later.
type Watcher struct {
	w      *fsnotify.Watcher // nil where there are none
	logger *slog.Logger
	known  map[string]bool
	refuse bool // a limit was met, and said so
}

// NewWatcher returns a watcher of nothing yet.
func NewWatcher(logger *slog.Logger) *Watcher {
	w, err := fsnotify.NewBufferedWatcher(64)
	if err != nil {
		logger.Warn("no change notifications, looking every second instead", "err", err)
		w = nil
	}

	return &Watcher{w: w, logger: logger, known: map[string]bool{}}
}

// Watch adds the directories of the streams, and those above them up to root, where new
// ones appear. The directory of a stream for which told returns true is not watched: its
// writer tells when it grows, and a watch would wake the process at each write. Watch is
// called after a Scan, from the same goroutine.
func (w *Watcher) Watch(root string, streams []*Stream, told func(*Stream) bool) {
	if w.w == nil || w.refuse {
		return
	}

	w.add(root)
	for _, s := range streams {
		w.add(filepath.Dir(s.Dir.Path))
		if !told(s) {
			w.add(s.Dir.Path)
		} else if w.known[s.Dir.Path] {
			delete(w.known, s.Dir.Path)
			_ = w.w.Remove(s.Dir.Path) // gone, or was never watched
		}
	}
}

// add watches a directory. After the first refusal it asks for no more: a limit is the user's, and others need
// watches, too.
func (w *Watcher) add(dir string) {
	if w.known[dir] || w.refuse {
		return
	}

	w.known[dir] = true
	if err := w.w.Add(dir); err != nil {
		w.refuse = true
		w.logger.Warn("no change notifications for all directories, looking every second instead", "dir", dir, "err", err)
	}
}

// Run calls hint whenever something changed: grown when that is no more than a file
// being longer. It returns when ctx ends.
func (w *Watcher) Run(ctx context.Context, hint func(grown bool)) error {
	if w.w == nil {
		<-ctx.Done()
		return nil
	}

	defer w.w.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.w.Events:
			if !ok {
				return nil
			}

			hint(e.Op == fsnotify.Write)
		case err, ok := <-w.w.Errors: // an overflow: something changed
			if !ok {
				return nil
			}

			w.logger.Debug("change notifications", "err", err)
			hint(false)
		}
	}
}
