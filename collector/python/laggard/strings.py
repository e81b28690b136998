"""The strings of a process: what slots name by a 16-bit id.

Ids are given out before the process's file exists and stay valid after a fork:
the file gets the same bytes whenever it is made.
"""

import os
import struct
import threading

from . import layout

_ENTRY = struct.Struct("<II")
# Checkpoint paths are without bound; ops and groups must find room after them.
_PATH_ROOM = layout.STRINGS * 3 // 4
_LONGEST = 4096


class Strings(object):
    """A growing table of strings. Safe in any thread."""

    def __init__(self):
        self._ids = {"": 0}
        self._image = bytearray()
        self._mapping = None
        self._refused = 0
        self._busy = False
        self.lock = threading.RLock()

    def id(self, text):
        """Returns the id of text, 0 when there is no room for it (counted)."""
        found = self._ids.get(text)
        if found is None:
            found = self._add(text, layout.STRINGS)
        return found

    def text(self, number):
        """Returns the string with this id, "" without one. Slow."""
        return next((text for text, known in list(self._ids.items()) if known == number), "")

    def path(self, text):
        """Returns the id of a path: like id, but leaves room for other words."""
        found = self._ids.get(text)
        if found is None:
            found = self._add(text, _PATH_ROOM)
        return found

    def _add(self, text, room):
        data = text.encode("utf-8", "replace")[:_LONGEST]
        if len(text) > _LONGEST:
            data = data.decode("utf-8", "ignore").encode("utf-8")
        with self.lock:
            return self._append(text, data, room)

    def _append(self, text, data, room):
        if self._busy:
            return 0  # a signal handler in the middle of this function
        self._busy = True
        try:
            # Only from here on is it sure that no handler adds the same word in between.
            found = self._ids.get(text)
            return self._put(text, data, room) if found is None else found
        finally:
            self._busy = False

    def _put(self, text, data, room):
        at = len(self._image)
        size = 8 + (len(data) + 7 & ~7)
        number = len(self._ids)
        if number > 0xFFFF or at + size > room:
            self._refused += 1
            self._publish()
            return 0
        self._image += _ENTRY.pack(len(data), layout.checksum(data)) + data
        self._image += bytes(at + size - len(self._image))
        self._ids[text] = number
        if self._ours():
            base = layout.PROCESS_HEADER
            self._mapping[base + at:base + at + size] = bytes(self._image[at:])
            self._publish()
        return number

    def publish_identity(self, text):
        """Returns the id of an identity's JSON, which may be longer than a word."""
        data = text.encode("utf-8")
        with self.lock:
            return self._append(text, data, layout.STRINGS)

    def _publish(self):
        """Stores the counters, each by one store: struct's pack_into writes zeros
        first, and a reader, or the end of the process, may come between."""
        if self._ours():
            memoryview(self._mapping).cast("Q")[48] = self._refused
            memoryview(self._mapping).cast("I")[48] = len(self._image)

    def attach(self, mapping):
        """Copies the strings so far into a process file; later ones go there too."""
        with self.lock:
            base = layout.PROCESS_HEADER
            mapping[base:base + len(self._image)] = bytes(self._image)
            self._mapping, self._pid = mapping, os.getpid()
            self._publish()

    def _ours(self):
        """Whether there is a file and it is this process's: see Process.ours."""
        return self._mapping is not None and self._pid == os.getpid()

    def interrupted(self):
        """Reports whether the caller is a signal handler that came in the middle of a
        word: nothing can be added until it has returned."""
        with self.lock:
            return self._busy

    def hold(self):
        """Before a fork: waits until no other thread is in the middle of a string,
        whose half the child would go on from."""
        self.lock.acquire()

    def let_go(self):
        """After a fork, in the parent."""
        self.lock.release()

    def detach(self):
        """Ends the writing into the file: in a forked child it is the parent's."""
        self.lock = threading.RLock()
        self._busy = False
        self._mapping = None
