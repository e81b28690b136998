"""Lines on stderr."""

import os
import sys
import time

AGAIN = 30.0  # seconds between two reports of the same problem


def say(text):
    """Writes one line."""
    try:
        sys.stderr.write("laggard[%d]: taskd: %s\n" % (os.getpid(), text))
        sys.stderr.flush()
    except Exception:  # pylint: disable=broad-except
        pass  # no stderr


class Complaint(object):
    """Says a problem when it is new, then every half minute while it lasts."""

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._text = None
        self._at = 0.0

    def __call__(self, text):
        """Reports text; None: all is well again."""
        now = self._clock()
        if text is not None and (text != self._text or now - self._at >= AGAIN):
            self._at = now
            say(text)
        self._text = text
