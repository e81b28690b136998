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
        self._create(word, meta)

    def _create(self, word, meta):
        """Makes the folder. Raises OSError."""
        if not os.path.isdir(self.run):
            os.makedirs(self.run, exist_ok=True)
            os.chmod(self.run, 0o1777 | os.stat(self.run).st_mode & stat.S_ISGID)
        temporary = os.path.join(self.run, ".%016x.new" % self.life.incarnation)
        _discard(temporary)
        os.mkdir(temporary, 0o770)
        try:
            # The setgid bit of the parent stays: that is how a pod's fsGroup shares it.
            os.chmod(temporary, 0o770 | os.stat(temporary).st_mode & stat.S_ISGID)
            path = os.path.join(temporary, "process")
            fd, self.mapping = layout.allocate(path, layout.PROCESS_SIZE)
            os.close(fd)
            # Opened anew: the mapping keeps the first file description, also in a
            # forked child, and would keep its lock with it.
            self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.words = memoryview(self.mapping).cast("I")
            self.quads = memoryview(self.mapping).cast("Q")
            self._fill(word, meta)
            os.rename(temporary, self.folder)
        except BaseException:
            _discard(temporary)
            raise

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
            ring = rings.create(self.folder, self.made + 1, slots, self)
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
        os.close(self.fd)


def _discard(folder):
    """Removes a folder that an earlier try left."""
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    except OSError:
        pass
