"""A process's folder: the file `process` with identity, strings and the switch.

Invariant: the folder appears under its final name only when `process` is
complete and locked; the lock is held as long as the process lives.
"""

import fcntl
import json
import os
import stat
import struct
import threading

from . import clock
from . import layout
from . import ring as rings
from . import room

DEFAULT_RUN = "/dev/shm/laggard"

_HEADER = struct.Struct("<8sIIIIQQQQ36sIII")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def hash_id(*parts):
    """Returns FNV-1a (64 bit) over the parts, each preceded by its length."""
    value = _FNV_OFFSET
    for part in parts:
        data = part.encode("utf-8")
        for byte in struct.pack("<Q", len(data)) + data:
            value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return value


class Life(object):
    """Who this process is to the kernel: pid, start, boot, incarnation."""

    def __init__(self):
        self.pid = os.getpid()
        with open("/proc/self/stat", "rb") as f:
            self.ticks = int(f.read().rpartition(b")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id", "r") as f:
            self.boot_id = f.read().strip()[:36]
        self.started = clock.started(self.ticks)
        self.incarnation = hash_id(self.boot_id, str(self.pid), str(self.ticks))
        try:
            self.namespace = os.stat("/proc/self/ns/pid").st_ino
        except OSError:
            self.namespace = 0


class Process(object):
    """The folder of this process, made at its first range."""

    def __init__(self, run, life, strings, word, meta, state):
        self.life = life
        self.strings = strings
        self.state = state
        self.run = run
        self.folder = os.path.join(run, "%016x" % life.incarnation)
        self.lock = threading.RLock()
        self.making = False
        self.made = 0
        self.left = layout.BUDGET - layout.PROCESS_SIZE
        self.idle = []  # rings of threads that have ended
        self.rings = []
        run = _open_run(self.run)
        try:
            self._create(run, word, meta)
        finally:
            os.close(run)

    def _create(self, run, word, meta):
        """Makes the folder in the run directory, open as a descriptor. Raises OSError."""
        name = "%016x" % self.life.incarnation
        temporary = ".%s.new" % name
        self.directory = self.fd = -1
        _discard(run, temporary)
        os.mkdir(temporary, 0o770, dir_fd=run)
        try:
            self.directory = os.open(temporary, room.DIRECTORY, dir_fd=run)
            _set_mode(self.directory, 0o770)
            fd, self.mapping = layout.allocate(self.directory, "process", layout.PROCESS_SIZE)
            os.close(fd)
            room.check(run, name, 0, True, self.life.namespace)
            # Opened anew: the mapping keeps the first file description, also in a
            # forked child, and would keep its lock with it.
            self.fd = os.open("process", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self.directory)
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.words = memoryview(self.mapping).cast("I")
            self.quads = memoryview(self.mapping).cast("Q")
            self._fill(word, meta)
            os.rename(temporary, name, src_dir_fd=run, dst_dir_fd=run)
        except BaseException:
            self._close_files()
            _discard(run, temporary)
            raise

    def check_room(self, more):
        """Raises OSError when the user's processes have no room for so many bytes more."""
        run = os.open("..", room.DIRECTORY, dir_fd=self.directory)
        try:
            room.check(run, os.path.basename(self.folder), more, False, self.life.namespace)
        finally:
            os.close(run)

    def _close_files(self):
        for fd in (self.fd, self.directory):
            if fd >= 0:
                os.close(fd)
        self.fd = self.directory = -1

    def _fill(self, word, meta):
        life = self.life
        _HEADER.pack_into(self.mapping, 0, layout.PROCESS_MAGIC, layout.VERSION, layout.PROCESS_HEADER,
                          layout.STRINGS, life.pid, life.ticks, life.started, life.incarnation,
                          life.namespace, life.boot_id.encode("ascii", "replace"), layout.CHECKSUM,
                          layout.LIVE, 0)
        self.strings.attach(self.mapping)
        self.words[32] = word
        self.follow(word)
        self.identify(meta)

    def follow(self, word):
        """Notes that the recorder acts on a switch word from now on."""
        if self.words[33] != word or not self.quads[17]:
            self.words[33] = word
            self.quads[17] = clock.now()

    def identify(self, meta):
        """Publishes the identity, a dict as FORMAT.md section 1 shows it."""
        text = json.dumps(meta, separators=(",", ":"), sort_keys=False)
        number = self.strings.publish_identity(text)
        if number:
            self.words[25] = number

    def ours(self):
        """Whether this is still the process of the folder: what runs in a forked child
        before its own hook (the end of a thread, a signal handler) can't know."""
        return os.getpid() == self.life.pid

    def take(self):
        """Returns a ring that nobody writes, or None when there is no room.

        A ring of a thread that has ended is taken first: threads may come and go
        without end, files may not.
        """
        if not self.ours():
            return None
        with self.lock:
            if self.idle:
                return self.idle.pop()
            return self._make()

    def _make(self):
        slots = layout.fit(self.made + 1, self.left)
        if slots is None or self.making:  # the latter: a signal handler in here
            return None
        try:
            self.making = True
            ring = rings.create(self.directory, self.made + 1, slots, self)
        except OSError:
            return None
        finally:
            self.making = False
        self.made += 1
        self.left -= ring.size
        self.words[49] = self.made
        self.rings.append(ring)
        return ring

    def release(self, ring):
        """Takes back the ring of a thread that ends. A fork ends all others of the child."""
        if self.ours():
            ring.close()
            self.idle.append(ring)

    def lost(self, kind):
        """Counts a range that had no ring."""
        if self.ours():
            with self.lock:
                self.quads[32 + kind] += 1

    def close(self):
        """Says that the recorder left in order; the lock stays until the end. What
        a daemon thread still does is not recorded: nobody reads a closed ring."""
        for ring in self.rings:
            ring.close()
            ring.disown()
        self.words[24] = layout.CLOSED

    def disown(self):
        """In a forked child: nothing of the parent's is ever written again."""
        for ring in self.rings:
            ring.disown()
        self.idle = []
        self.strings.detach()
        self._close_files()


def _open_run(path):
    """Opens the run directory, which may be no link, and makes it when it is missing.
    Raises OSError."""
    path = os.path.abspath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.mkdir(path)
        made = True
    except FileExistsError:
        made = False
    run = os.open(path, room.DIRECTORY)
    if made:
        _set_mode(run, 0o1777)
    return run


def _set_mode(directory, mode):
    """Gives a new folder its mode whatever the umask is, and leaves it the setgid bit of
    its parent: that is how a pod's fsGroup shares it."""
    os.fchmod(directory, mode | os.fstat(directory).st_mode & stat.S_ISGID)


def _discard(run, name):
    """Removes a folder that an earlier try left."""
    try:
        folder = os.open(name, room.DIRECTORY, dir_fd=run)
    except OSError:
        return
    try:
        for each in os.listdir(folder):
            os.unlink(each, dir_fd=folder)
        os.rmdir(name, dir_fd=run)
    except OSError:
        pass
    finally:
        os.close(folder)
