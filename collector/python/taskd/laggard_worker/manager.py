"""TaskD's manager, as its worker sees it: join the network of the pod's proxy,
register, obey, report.

    worker -> proxy   Register, PathDiscovery, InitServerDownStream
    worker -> Mgr     REGISTER 101, ten tries; STATUS 14xy: x the four light kinds,
                      y Communication, 0 off, 1 on, 2 it failed
    Mgr -> worker     ACTION 700 all off, 710 light, 701 communication, 711 all

Nothing here blocks longer than a call's timeout, and a manager that is not there
costs a connection attempt a second.
"""

import json
import os
import time
import uuid

from . import http2
from . import log
from . import messages

ADDRESS = "127.0.0.1:9602"
REGISTER, TRIES = 101, 10
CODES = {700: 0, 710: 1, 701: 2, 711: 3}
TIMEOUT = 3.0  # seconds of a call, TaskD's


def address():
    """Returns (host, port) of the proxy: LAGGARD_TASKD_PROXY, else TaskD's place.
    None: LAGGARD_TASKD_PROXY=off."""
    given = os.environ.get("LAGGARD_TASKD_PROXY") or ADDRESS
    if given == "off":
        return None
    host, _, port = given.rpartition(":")
    return host, int(port)


class Manager(object):
    """The link to the manager; turn() is its life."""

    def __init__(self, rank, node, command, recorded, stop, clock=time.monotonic):
        self.registered = False  # once it was; then the switch file counts no more
        self._command = command
        self._recorded = recorded
        self._stop = stop
        self._clock = clock
        self._position = messages.position("Worker", node, rank)
        self._where = {1: "Worker", 2: str(node), 3: str(rank)}
        self._to = messages.position("Mgr", 0, -1)
        self._link = self._down = None
        self._tries, self._next = 0, 0.0
        self._status = None  # the last that was reported
        self._complain = log.Complaint()

    def close(self):
        """Leaves the network."""
        if self._link is not None:
            self._link.close()
        self._link = self._down = None

    def turn(self, seconds):
        """Does what there is to do with the manager, for as long as that."""
        end = self._clock() + seconds
        if address() is None or self._tries >= TRIES and not self.registered:
            self.close()
            self._stop.wait(seconds)
            return
        try:
            if self._link is None:
                self._join()
            if self._clock() >= self._next and self._tries < TRIES:
                self._register()
            while not self._stop.is_set():
                self._obey()
                self._correct()
                left = end - self._clock()
                if left <= 0:
                    return
                self._link.pump(min(left, 0.2))
        except http2.Broken as cause:
            if self.registered or self._link is not None:
                self._complain("manager: %s; tried again every second" % cause)
            self.close()
        except OSError:
            self.close()  # nobody there: a job without TaskD's manager
        except messages.Wrong as cause:
            self._complain("manager: %s" % cause)
            self.close()
        self._stop.wait(max(end - self._clock(), 0))

    def _join(self):
        host, port = address()
        link = http2.Connection(host, port, TIMEOUT)
        try:
            self._acked(link.call("/TaskNet/Register", messages.register(_id(), self._position), TIMEOUT))
            link.call("/TaskNet/PathDiscovery", messages.path_discovery(_id(), self._position), TIMEOUT)
            keys = zip(("role", "serverrank", "processrank"), (self._where[n] for n in (1, 2, 3)))
            self._down = link.open("/TaskNet/InitServerDownStream", tuple(keys))
        except BaseException:
            link.close()
            raise
        self._link = link
        self._tries, self._next = 0, 0.0

    @staticmethod
    def _acked(answer):
        code = messages.number(messages.fields(answer), 2)
        if code:
            raise http2.Broken("refused with code %d" % code)

    def _send(self, kind, code):
        self._acked(self._link.call(
            "/TaskNet/TransferMessage", messages.message(_id(), self._position, self._to, kind, code), TIMEOUT))

    def _register(self):
        """Registers; after the n-th failure n seconds pass. A manager that came back
        has forgotten us, so a new link registers anew."""
        try:
            self._send("REGISTER", REGISTER)
        except http2.Broken as cause:
            self._tries += 1
            self._next = self._clock() + self._tries
            if self._tries >= TRIES:
                log.say("manager: not registered after %d tries (%s): %s" % (
                    TRIES, cause, "tried no more" if not self.registered else "the link is made anew"))
                if self.registered:
                    raise
            return
        if not self.registered:
            log.say("registered with TaskD's manager: it commands the switch, the switch file is not read any more")
        self.registered = True
        self._tries, self._next = 0, float("inf")
        self._complain(None)
        if self._status is not None:
            self._send("STATUS", self._status)

    def _obey(self):
        if self._down.ended:
            raise http2.Broken("the manager's stream ended")
        while self._down.messages:
            found = messages.fields(self._down.messages.pop(0))
            header = messages.inner(found, 1)
            if messages.number(header, 3):
                self._link.send(self._down, messages.ack(messages.text(header, 1), 0, self._position), timeout=TIMEOUT)
            code = _code(messages.text(found, 2))
            if code not in CODES:
                log.say("manager: code %s is none of %s; ignored" % (code, ", ".join(str(c) for c in sorted(CODES))))
                continue
            light, comm = self._command(CODES[code])
            self._status = 1400 + 10 * light + comm
            self._send("STATUS", self._status)


    def _correct(self):
        """Reports what is recorded when that is no longer what was reported: somebody
        else has spoken."""
        bits = self._recorded()
        if self._status is None or bits is None:
            return
        status = 1400 + 10 * (bits & 1) + (bits >> 1)
        if status != self._status:
            self._status = status
            self._send("STATUS", status)


def _code(body):
    try:
        return int(json.loads(body)["code"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _id():
    return str(uuid.uuid4())
