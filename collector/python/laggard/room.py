"""What this user's processes take of the run directory, and what of it dead ones hold
for nothing (schemas/FORMAT.md, section 2.4).

Invariant: no record that an agent has not taken is freed, nothing of a living process,
and nothing that an agent is draining.
"""

import errno
import fcntl
import mmap
import os
import re
import stat
import struct

from . import layout

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = re.compile(r"(\.)?[0-9a-f]{16}(?(1)\.new)\Z")
_SMALL = 64 << 10  # a file that is not looked into
_LAST = 64  # slots below a head from which an agent tells how a process ended


def check(run, own, more, folder, namespace):
    """Raises OSError when this user's processes take more of a run directory, open as a
    descriptor, than their share, with so many bytes more. What dead ones hold for
    nothing is freed first: always for a new folder, else when it is needed."""
    for freeing in (True,) if folder else (False, True):
        taken, folders = _survey(run, own, freeing, namespace)
        if taken + more <= layout.USER_BYTES and (not folder or folders <= layout.USER_FOLDERS):
            return
    raise OSError(errno.EDQUOT, "the rings of this user's processes fill their share of the run directory: "
                                "is an agent draining it?")


def _survey(run, own, freeing, namespace):
    taken = folders = 0
    for name in os.listdir(run):
        if not _FOLDER.match(name):
            continue
        try:
            name, found = _stat_listed(run, name)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            directory = os.open(name, DIRECTORY, dir_fd=run)
        except OSError:
            continue  # gone meanwhile
        try:
            folders += 1
            size = _size(directory)
            if freeing and size > 2 * _SMALL and name[0] != "." and name != own:
                try:
                    _free_dead(directory, namespace)
                except (OSError, ValueError):
                    pass  # it is held, by its process or by an agent
                size = _size(directory)
            taken += size
        finally:
            os.close(directory)
    return taken, folders


def _stat_listed(directory, name):
    """Returns (name, stat) of what was listed. One that was being made (.NAME.new) may have
    been published since: then NAME's. Raises OSError."""
    try:
        return name, os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        if name[0] != "." or not name.endswith(".new"):
            raise
    name = name[1:-4]
    return name, os.stat(name, dir_fd=directory, follow_symlinks=False)


def _size(directory):
    size = 0
    for name in os.listdir(directory):
        try:
            _, found = _stat_listed(directory, name)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            size += found.st_blocks * 512
    return size


def _open_plain(directory, name):
    """Returns (descriptor, stat) of a plain file of ours. Raises OSError."""
    fd = os.open(name, _PLAIN, dir_fd=directory)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
        os.close(fd)
        raise OSError(errno.EPERM, "%s is no plain file of ours" % name)
    return fd, found


def _free_dead(directory, namespace):
    """Whoever holds agent.lock may free: an agent that drains is not disturbed."""
    fd, found = _open_plain(directory, "process")
    lock = -1
    try:
        head = os.pread(fd, 256, 0)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if len(head) < 256 or head[:12] != layout.PROCESS_MAGIC + b"\1\0\0\0" or not _dead(head, namespace):
            return
        lock = os.open("agent.lock", _PLAIN | os.O_CREAT, 0o660, dir_fd=directory)
        try:
            os.fchmod(lock, 0o660)  # whatever the umask: the agent may be another user of the group
        except OSError:
            pass  # it is the agent's
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        used, = struct.unpack_from("<I", head, 192)
        if used <= layout.STRINGS and found.st_size == layout.PROCESS_SIZE:
            _punch(fd, found.st_size, [(layout.PROCESS_HEADER + used, layout.PROCESS_SIZE)])
        for name in os.listdir(directory):
            if name.startswith("ring-"):
                _free_ring(directory, name)
    finally:
        os.close(fd)
        if lock >= 0:
            os.close(lock)


def _dead(head, namespace):
    """As the agent sees it: where the pid is one of ours, that is over or another's."""
    pid, ticks = struct.unpack_from("<IQ", head, 20)
    theirs, = struct.unpack_from("<Q", head, 48)
    state, = struct.unpack_from("<I", head, 96)
    if state == layout.CLOSED or theirs != namespace or not namespace or not 0 < pid < 1 << 31:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
    except OSError:
        return True
    return fields[0] in (b"Z", b"X") or int(fields[19]) != ticks


def _free_ring(directory, name):
    fd, found = _open_plain(directory, name)
    try:
        head = os.pread(fd, 512, 0)
        if found.st_blocks * 512 <= _SMALL or len(head) < 512 or head[:12] != layout.RING_MAGIC + b"\1\0\0\0":
            return
        slots = struct.unpack_from("<II", head, 24)
        if not all(0 < n <= layout.BUDGET // layout.SLOT and n & n - 1 == 0 for n in slots) or layout.ring_size(*slots) > found.st_size:
            return
        free, base = [], layout.RING_HEADER
        for lane, count in enumerate(slots):
            published, = struct.unpack_from("<Q", head, 64 + 128 * lane)
            taken, = struct.unpack_from("<Q", head, 128 + 128 * lane)
            free += _free_parts(base, count, published, taken)
            base += layout.SLOT * count
        _punch(fd, found.st_size, free)
    finally:
        os.close(fd)


def _free_parts(base, slots, head, tail):
    """Returns what of a lane is neither to be taken by an agent nor of its last slots."""
    low = min(tail, max(head - _LAST, 0))
    if tail > head or head - low >= slots:
        return []
    end = base + layout.SLOT * slots
    last, first = base + layout.SLOT * (head % slots), base + layout.SLOT * (low % slots)
    return [(base, first), (last, end)] if low == head or first < last else [(last, first)]


def _punch(fd, size, parts):
    """Gives the whole pages of parts back, where Python can (3.8)."""
    if not hasattr(mmap, "MADV_REMOVE"):
        return
    with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as mapping:
        for start, end in parts:
            start, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
            if start < end:
                mapping.madvise(mmap.MADV_REMOVE, start, end - start)
