"""Batches and checkpoints: DataLoader, torch.save, and the savers of the frameworks.

A save is recorded once: what a framework's saver calls is part of it. A save in
another thread than the one that trains has the kind `background save`: it is time, but
no step waits for it. Collectives inside it are exposed to nobody.
"""

import functools
import os
import sys
import threading

from . import clock
from . import hook
from . import recorder
from .layout import DATA_LOADER, OTHER, SAVE_CHECKPOINT
from .savers import SAVERS
from .span import Automatic
from .steps import steps

_inside = recorder.inside


def cover(torch):
    """Covers the iterators of DataLoader and torch.save."""
    from torch.utils.data import dataloader
    base = dataloader._BaseDataLoaderIter
    for cls in [base] + base.__subclasses__():
        if "__next__" in vars(cls):
            cover_next(cls)
    _cover_save(torch, "save", 1, "f")
    torch.serialization.save = torch.save


def cover_next(cls):
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


_PARTS = ("torch.storage", "torch.distributed.checkpoint.")  # these call torch.save for a part of something


def cover_savers(module):
    """Covers the savers of a module in SAVERS: those that its version has."""
    found = [saver for saver in SAVERS[module.__name__]
             if callable(getattr(getattr(module, saver[0], None) if saver[0] else module, saver[1], None))]
    if not found:
        raise AttributeError("%s has no saver that is known" % module.__name__)
    for cls, name, position, keyword in found:
        owner = getattr(module, cls) if cls else module
        before = getattr(owner, name)
        _cover_save(owner, name, position + 1 if cls and position is not None else position, keyword)
        if not cls:
            hook.everywhere(module, name, before)


def _background():
    """Reports whether another thread trains: the one of the open step, else the first."""
    trains = steps.thread or threading.main_thread().ident
    return threading.get_ident() != trains


def _cover_save(module, name, position, keyword):
    """One range for each outermost save, with where to and how many bytes."""
    inner = getattr(module, name)
    if hasattr(inner, "__laggard__"):
        return
    partial = getattr(inner, "__module__", "") == "torch.serialization"

    @functools.wraps(inner)
    def save(*args, **kwargs):
        if _inside.saving or partial and (sys._getframe(1).f_globals.get("__name__") or "").startswith(_PARTS):
            return inner(*args, **kwargs)
        span = target = None
        try:
            target = kwargs.get(keyword)
            if target is None and position is not None and len(args) > position:
                target = args[position]
            background = _background()
            span = Automatic(OTHER, recorder.strings.id("background save")) if background else \
                Automatic(SAVE_CHECKPOINT, _path(target))
            _inside.saving = 2 if background else 1
            span.begin()
        except Exception as cause:  # pylint: disable=broad-except
            recorder.trouble("record a save", cause)
        try:
            return inner(*args, **kwargs)
        finally:
            _inside.saving = 0
            if span is not None:
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
            return 0 if os.path.isdir(target) else os.path.getsize(target)
        return max(int(target.tell()), 0)
    except Exception:  # pylint: disable=broad-except
        return 0  # a target without a size
