package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Compress replaces a segment that nobody appends to any more by <name>.zst with
// the same bytes inside, and returns the new path. The new file is complete and
// durable before it gets its name, and has it before the old one goes; a crash in
// between leaves both, and a second Compress ends the work. Modification time and
// mode stay, so that ageing keeps its order.
func Compress(path string) (string, error) {
	to := path + compressed
	if err := compress(path, to); err != nil {
		return "", fmt.Errorf("compress segment %s: %w", path, err)
	}

	return to, nil
}

// compress is Compress without the error's prefix.
func compress(path, to string) (err error) {
	if n, ok := Number(filepath.Base(path)); !ok || strings.HasSuffix(path, compressed) {
		return fmt.Errorf("want the name of a plain segment, not number %d", n)
	}

	src, err := openAt(path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer src.Close()
	st, err := src.Stat()
	if err != nil {
		return err
	}

	rankDir := filepath.Dir(path)
	tmp := filepath.Join(rankDir, "."+filepath.Base(to)+".tmp") // a dot name is nobody's segment
	if err := Disk.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // left by a crash, and it stays
	}

	dst, err := openAt(tmp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
	if err != nil {
		return err
	}

	if err := deflate(dst, src, st); err != nil {
		return errors.Join(err, dst.Close(), Disk.Remove(tmp))
	}

	if err := dst.Close(); err != nil {
		return errors.Join(err, Disk.Remove(tmp))
	}

	dir, err := openDir(rankDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	if err := unix.Renameat(fd, filepath.Base(tmp), fd, filepath.Base(to)); err != nil {
		return errors.Join(fmt.Errorf("rename: %w", err), Disk.Remove(tmp))
	}

	if err := syncFile(dir); err != nil {
		return err
	}

	if err := unix.Unlinkat(fd, filepath.Base(path), 0); err != nil {
		return fmt.Errorf("unlink: %w", err)
	}

	return syncFile(dir)
}

// deflate writes all of src to dst, durably, with the times and mode of st.
func deflate(dst, src *os.File, st os.FileInfo) error {
	z, err := zstd.NewWriter(dst, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}

	n, err := io.Copy(z, src)
	if err = errors.Join(err, z.Close()); err != nil {
		return err
	}

	if n != st.Size() {
		return fmt.Errorf("it changed meanwhile: %d bytes, then %d", st.Size(), n)
	}

	if err := dst.Chmod(st.Mode().Perm()); err != nil {
		return err
	}

	if err := dst.Sync(); err != nil {
		return err
	}

	// Ageing takes the oldest first, by this.
	mtime := unix.NsecToTimeval(st.ModTime().UnixNano())
	return unix.Futimes(int(dst.Fd()), []unix.Timeval{mtime, mtime})
}
