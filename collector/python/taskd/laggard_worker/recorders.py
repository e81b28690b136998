"""The two recorders, as the worker sees them.

With liblaggard_mspti.so preloaded that library records, out of libmspti; else the
package laggard does, which instruments PyTorch. Never both: a process has one ring
folder.

    rank(number)     who this process is
    start()          makes the ring folder, so that an agent can switch
    want(bits)       as an agent would; bit 0 the four light kinds, bit 1 Communication
    followed(bits)   whether that is what is recorded now
    recorded()       what is recorded now, None while it changes
"""

import ctypes
import json
import os
import time


class Python(object):
    """The package laggard."""

    name = "laggard (Python)"

    def __init__(self, framework):
        self.automatic = framework == "pt"

    def rank(self, number):
        """Says which rank this is, and instruments PyTorch."""
        import laggard
        laggard.init(rank=number, auto=self.automatic)

    @staticmethod
    def start():
        """Makes the ring folder."""
        from laggard import recorder
        return recorder.ready(False)

    @staticmethod
    def want(bits):
        """Writes the switch word; reports whether there is one."""
        from laggard import recorder
        if not recorder.ready(False):
            return False
        words = recorder._process.words  # pylint: disable=protected-access
        if words[32] & 3 != bits:
            words[32] = (words[32] >> 8) + 1 << 8 & 0xFFFFFFFF | bits
        return True

    @staticmethod
    def followed(bits):
        """Each range looks at the word itself."""
        from laggard import recorder
        return recorder.ready(False) and recorder._process.words[32] & 3 == bits  # pylint: disable=protected-access


    @staticmethod
    def recorded():
        """Whatever the word says."""
        from laggard import recorder
        if not recorder.ready(False):
            return None
        return recorder._process.words[32] & 3  # pylint: disable=protected-access


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "markers", "activities", "records", "unmatched", "unknown", "dropped_markers",
        "dropped_buffers", "buffers", "refused")] + [("on", ctypes.c_uint32), ("waiting", ctypes.c_uint32)]


class Native(object):
    """liblaggard_mspti.so."""

    name = "liblaggard_mspti.so"

    def __init__(self, library):
        self.library = library
        library.laggard_set_meta.argtypes = [ctypes.c_char_p]
        library.laggard_error.restype = ctypes.c_char_p
        library.laggard_mspti_want.argtypes = [ctypes.c_uint32]
        library.laggard_mspti_wanted.restype = ctypes.c_uint32
        library.laggard_mspti_count.argtypes = [ctypes.POINTER(_Counts)]

    def rank(self, number):
        """Publishes the identity that the package laggard would have."""
        from laggard import recorder
        from laggard.process import Life
        recorder.identity.give(rank=number)
        meta = recorder.identity.meta(Life())
        meta["writer"] = "mspti/1"
        self.library.laggard_set_meta(json.dumps(meta, separators=(",", ":")).encode("utf-8"))

    def start(self):
        """Makes the ring folder and the library's thread."""
        return self.library.laggard_mspti_start() == 0 and not self.library.laggard_error()

    def want(self, bits):
        """Writes the switch word; reports whether there is one."""
        return self.library.laggard_mspti_want(bits) == 0

    def counts(self):
        """Returns the library's counts."""
        counts = _Counts()
        self.library.laggard_mspti_count(ctypes.byref(counts))
        return counts

    def followed(self, bits):
        """Waits a second at most for libmspti to be told."""
        end = time.monotonic() + 1
        while self.counts().on != bits:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True


    def recorded(self):
        """What libmspti was told last, when that is what is wanted."""
        on = self.counts().on
        return on if on == self.library.laggard_mspti_wanted() & 3 else None


def choose(framework):
    """Returns the recorder of this process."""
    try:
        library = ctypes.CDLL(None)
        library.laggard_mspti_start  # raises where it is not loaded
        return Native(library)
    except (AttributeError, OSError):
        return Python(framework)


def off_by_default():
    """Records nothing until told, unless the job says otherwise."""
    os.environ.setdefault("LAGGARD_TRACE", "off")
