// Package keep writes the small files that must survive a crash of their writer or
// of the machine.
//
// Invariant: a file is complete, old or new, or not there: written beside, synced,
// renamed, and the directory synced. Caveat: halves named .new-* may be left by a
// crash; who owns the directory removes them.
package keep

import (
	"errors"
	"os"
	"path/filepath"
)

// Half is how the names of files begin that are not complete.
const Half = ".new-"

// Write replaces the file by data.
func Write(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, Half+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // what is left is only a half of a copy
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
