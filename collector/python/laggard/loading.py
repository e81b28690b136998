"""Batches and checkpoints: DataLoader, torch.save, torch.distributed.checkpoint."""

import functools
import os
import sys

from . import clock
from . import recorder
from .layout import DATA_LOADER, SAVE_CHECKPOINT
from .span import Automatic
from .steps import steps

_local = recorder.local


def cover(torch):
    """Covers the iterators of DataLoader and torch.save."""
    from torch.utils.data import dataloader
    base = dataloader._BaseDataLoaderIter
    for cls in [base] + base.__subclasses__():
        if "__next__" in vars(cls):
            _cover_next(cls)
    _cover_save(torch, "save", 1, "f")
    torch.serialization.save = torch.save


def _cover_next(cls):
    """One range for each batch handed over; the end of an epoch is none."""
    inner = cls.__next__
    if hasattr(inner, "__laggard__"):
        return

    def __next__(self):
        steps.open()
        span = Automatic(DATA_LOADER).begin()
        try:
            batch = inner(self)
        except StopIteration:
            span.cancel()
            raise
        except BaseException:
            span.end()
            raise
        span.end()
        return batch

    functools.update_wrapper(__next__, inner)
    __next__.__laggard__ = inner
    cls.__next__ = __next__
    if getattr(cls, "next", None) is inner:
        cls.next = __next__


def cover_checkpoint(module):
    """Covers torch.distributed.checkpoint's savers."""
    for name in ("save", "save_state_dict", "async_save"):
        if callable(getattr(module, name, None)):
            _cover_save(module, name, None, "checkpoint_id")


def _cover_save(module, name, position, keyword):
    """One range for each outermost save, with where to and how many bytes."""
    inner = getattr(module, name)
    if hasattr(inner, "__laggard__"):
        return

    @functools.wraps(inner)
    def save(*args, **kwargs):
        # Pickling a tensor goes through torch.save: no checkpoint.
        if _local.saving or sys._getframe(1).f_globals.get("__name__") == "torch.storage":
            return inner(*args, **kwargs)
        target = kwargs.get(keyword)
        if target is None and position is not None and len(args) > position:
            target = args[position]
        span = Automatic(SAVE_CHECKPOINT, _path(target)).begin()
        _local.saving = 1
        try:
            return inner(*args, **kwargs)
        finally:
            _local.saving = 0
            done = clock.now()
            span.value = _size(target)
            span.end(at=done)

    save.__laggard__ = inner
    setattr(module, name, save)


def _path(target):
    """Returns the id of where a checkpoint goes to, 0 when it is no path."""
    try:
        name = os.fspath(target)
    except TypeError:
        name = getattr(target, "name", "")
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    return recorder.strings.path(name) if isinstance(name, str) and name else 0


def _size(target):
    """Returns the bytes of what was written, 0 unknown."""
    try:
        if isinstance(target, (str, bytes, os.PathLike)):
            return os.path.getsize(target)
        return max(int(target.tell()), 0)
    except Exception:  # pylint: disable=broad-except
        return 0  # a target without a size
