package segment

import (
	"errors"
	"fmt"
	"syscall"
)

// Sync flushes and makes everything written durable, the segment's name included.
// An error of an earlier rotation is returned here, once.
func (w *Writer) Sync() error {
	if w.closed {
		return errClosed
	}

	err := w.Flush()
	synced := errors.Join(w.sync(), w.vanished())
	if synced != nil {
		w.dirty, w.dirDirty = false, false // once more proves nothing
		w.abandon()
	}

	err = errors.Join(err, w.syncErr, synced)
	w.syncErr = nil
	return err
}

// vanished tells that somebody deleted the open segment: what is written to it is
// read by nobody, so the Writer must not go on with it.
func (w *Writer) vanished() error {
	if w.file == nil {
		return nil
	}

	st, err := w.file.Stat()
	if err != nil {
		return fmt.Errorf("stat segment %s: %w", w.path(), err)
	}

	if st.Sys().(*syscall.Stat_t).Nlink == 0 {
		return fmt.Errorf("segment %s was deleted while it was written: %d bytes are lost unless they were read before", w.path(), w.size)
	}

	return nil
}

// sync makes the open segment durable.
func (w *Writer) sync() error {
	if w.file == nil {
		return nil
	}

	if w.dirty {
		if err := w.file.Sync(); err != nil {
			return fmt.Errorf("sync segment %s: %w", w.path(), err)
		}

		w.dirty = false
	}

	if w.dirDirty {
		if err := w.o.FS.SyncDir(w.dir); err != nil {
			return fmt.Errorf("sync directory %s: %w", w.dir, err)
		}

		w.dirDirty = false
	}

	return nil
}

// rotate closes the open segment, which is full. That it could not be synced is
// told by the next Sync: its lines are written all the same.
func (w *Writer) rotate() {
	err := w.sync()
	err = errors.Join(err, w.file.Close())
	w.file = nil
	w.syncErr = errors.Join(w.syncErr, err)
	if err == nil && w.o.OnClose != nil {
		w.o.OnClose(w.path())
	}
}

// abandon lets go of a segment after an error, which is told by the caller. What is
// in it stays there.
func (w *Writer) abandon() {
	if w.file == nil {
		return
	}

	w.syncErr = errors.Join(w.syncErr, w.sync(), w.file.Close())
	w.file = nil
	w.dirty, w.dirDirty, w.learnt = false, false, false
}

// Close syncs and closes the open segment. A segment that never got a line is
// removed. On an error lines may still have been in the buffer: they are lost to
// this Writer, and the next Open tells from where to go on.
func (w *Writer) Close() error {
	if w.closed {
		return nil
	}

	err := w.Sync()
	w.closed = true
	if w.file == nil {
		return err
	}

	err = errors.Join(err, w.file.Close())
	w.file = nil
	if w.size == 0 {
		return errors.Join(err, w.o.FS.Remove(w.path()))
	}

	return err
}
