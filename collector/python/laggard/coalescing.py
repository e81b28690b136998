"""Coalescing managers of NCCL's kind: operations that a group puts off between two calls,
and one Work that ends them all. The other kind, of tensors that are handed over together,
is one operation."""

import functools

from . import clock
from . import collectives
from . import recorder

_local, _inside, _now = recorder.local, recorder.inside, clock.now


class _Together(object):
    """Operations of a coalescing manager of NCCL's kind: one Work ends them all."""

    __slots__ = ("flights", "span", "exposed", "returned", "waiting", "waited", "done", "blocked", "left")

    def __init__(self, flights):
        self.flights, self.span = flights, flights[0].span
        self.exposed = self.waiting = 0
        self.returned, self.left = _now(), 1
        self.waited = False
        self.done = self.blocked = None

    def finish(self, at):
        """Writes the records; the time that was waited is shared out."""
        for flight in self.flights:
            flight.blocked = self.blocked
            flight.finish(at, flight.exposed + self.exposed // len(self.flights))
            self.blocked = None  # an event goes back to its pool once


def cover(group):
    """Covers the two methods between which a group's operations are put off."""
    for name, cover_method in (("_start_coalescing", _cover_start), ("_end_coalescing", _cover_end)):
        inner = getattr(group, name, None)
        if inner is not None and not hasattr(inner, "__laggard__"):
            covered = cover_method(inner)
            covered.__laggard__ = inner
            setattr(group, name, covered)


def _cover_start(inner):
    @functools.wraps(inner)
    def _start_coalescing(self, *args, **kwargs):
        result = inner(self, *args, **kwargs)
        _local.coalesced, _inside.coalescing = [], 1
        return result
    return _start_coalescing


def _cover_end(inner):
    @functools.wraps(inner)
    def _end_coalescing(self, *args, **kwargs):
        flights, _local.coalesced, _inside.coalescing = _local.coalesced, (), 0
        work = inner(self, *args, **kwargs)
        try:
            if flights and hasattr(work, "is_completed"):
                collectives.follow(work, _Together(flights), False)
            else:
                for flight in flights:
                    flight.finish(_now())
        except Exception as cause:  # pylint: disable=broad-except
            recorder.trouble("follow coalesced operations", cause)
        return work
    return _end_coalescing
