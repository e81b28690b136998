"""TaskD's switch file: five words, two booleans.

The four light kinds are off only when all five words are "off"; Communication is on
when its word is. So a word that is missing leaves the light kinds on, and a missing
CommunicationOperator is off. A word that is none of the five is reported and else ignored. A value that is neither "on" nor "off", and a file that is
no JSON object (it is written in place, so it may be half there), change nothing.
These are the rules of package collector/trace; a test holds them together.
"""

import json
import os
import stat

WORDS = ("CommunicationOperator", "Step", "SaveCheckpoint", "FP", "DataLoader")
PATH = "/user/cluster-info/datatrace-config/profilingSwitch"
LIMIT = 1 << 20  # bytes, TaskD's limit
LIGHT, COMMUNICATION = 1, 2


class Wrong(ValueError):
    """The text says nothing that can be followed."""


def path():
    """Returns where the file is: LAGGARD_SWITCH_FILE, else TaskD's place."""
    return os.environ.get("LAGGARD_SWITCH_FILE") or PATH


def _object(pairs):
    return dict(pairs)  # the last of two equal words counts


def _refuse(text):
    raise Wrong("%s is not JSON" % text)


def parse(data):
    """Returns (bits, complaint or None). Raises Wrong."""
    try:
        values = json.loads(data.decode("utf-8", "replace"), object_pairs_hook=_object, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Wrong("not a JSON object")
    if not isinstance(values, dict):
        raise Wrong("not a JSON object")
    wrong = sorted(word for word in WORDS if word in values and values[word] not in ("on", "off"))
    if wrong:
        raise Wrong("%s is %s: neither on nor off" % (wrong[0], json.dumps(values[wrong[0]])))
    unknown = sorted(word for word in values if word not in WORDS)
    complaint = None
    if unknown:
        complaint = "%r is none of %s; where one is missing the light kinds are on" % (unknown[0], ", ".join(WORDS))
    bits = 0
    if any(values.get(word) != "off" for word in WORDS):
        bits |= LIGHT
    if values.get(WORDS[0]) == "on":
        bits |= COMMUNICATION
    return bits, complaint


def read(name):
    """Returns (bits, complaint), or (None, complaint or None): no change.

    Links are followed: a mounted ConfigMap is one.
    """
    try:
        # A pipe must not hold us.
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None, None
    except OSError as cause:
        return None, "read switch %s: %s" % (name, cause.strerror)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None, "read switch %s: not a regular file" % name
        data = b""
        while len(data) <= LIMIT:
            part = os.read(fd, LIMIT + 1 - len(data))
            if not part:
                break
            data += part
        if len(data) > LIMIT:
            return None, "read switch %s: larger than %d bytes" % (name, LIMIT)
        bits, complaint = parse(data)
        return bits, complaint and "read switch %s: %s" % (name, complaint)
    except (OSError, Wrong) as cause:
        return None, "read switch %s: %s" % (name, cause)
    finally:
        os.close(fd)
