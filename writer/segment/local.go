package segment

import (
	"slices"

	"golang.org/x/sys/unix"
)

// local are the file systems of disks, and of memory, that one machine alone has.
var local = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.TMPFS_MAGIC,
	0x2fc12fc1, // ZFS
	0xca451a4e, // bcachefs
}

// Local reports whether a directory is this machine's alone, so that what was written
// there was written here. A file system that is not known to be is not: over a shared
// one the files of other machines are seen.
func Local(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && slices.Contains(local, int64(s.Type))
}
