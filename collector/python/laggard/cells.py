"""MindSpore: what is covered of an unchanged script.

    mindspore.nn.cell                    Cell.__call__: FP of the outermost network, Step where an
                                         optimizer has ended, Communication of a gradient reducer
    mindspore.nn.optim.optimizer         which optimizers there are
    mindspore.graph.api                  _PyNativeExecutor.grad: backward
    mindspore.train.callback._callback   CallbackManager: Model.train says where its steps are
    mindspore.dataset.engine.iterators   Iterator.__next__: DataLoader
    mindspore.ops.operations.comm_ops    operators called one by one: Communication
    mindspore.communication.management   rank and groups

A graph is one call: what happens inside it is not seen. PyNative mode launches and goes
on: the times are those of the launch, and a Communication leaves exposed out, unless
the script called mindspore.runtime.launch_blocking().
"""

import functools
import sys
import threading

from . import frameworks
from . import groups
from . import hook
from . import loading
from . import modules
from . import recorder
from .collectives import measure
from .layout import COMMUNICATION, FP, OTHER
from .span import Automatic
from .steps import follow, outermost, steps

_inside = recorder.inside
_outside = threading.local()  # .span: the open evaluation, .cls: of which class
_NETWORK, _WRAPPER, _OPTIMIZER, _REDUCER = range(4)
_places = {}  # class of a cell → what its call is
# Operator of MindSpore → its word.
_OPERATORS = {
    "AllReduce": "all_reduce", "AllGather": "all_gather_into_tensor", "ReduceScatter": "reduce_scatter_tensor",
    "Broadcast": "broadcast", "Reduce": "reduce", "Barrier": "barrier", "AlltoAll": "all_to_all_single",
    "AlltoAllV": "all_to_all_single", "AlltoAllVC": "all_to_all_single", "AllGatherV": "all_gather",
    "ReduceScatterV": "reduce_scatter", "CollectiveScatter": "scatter", "CollectiveGather": "gather", "Send": "send",
    "Receive": "recv", "NeighborExchange": "all_to_all", "NeighborExchangeV2": "all_to_all", "BatchISendIRecv": "batch_isend_irecv",
}
_WORLDS = ("hccl_world_group", "mccl_world_group", "nccl_world_group")


def cover_cells(module):
    """Covers Cell.__call__."""
    cell = module.Cell
    inner = hook.own(cell, "__call__")
    if hasattr(inner, "__laggard__"):
        return
    modules.began.append(steps.open)
    executor = module._pynative_executor
    stepped = outermost(inner, lambda self, _: self)
    evaluation = recorder.strings.id("evaluation")

    @functools.wraps(inner)
    def __call__(self, *args, **kwargs):
        if _inside.forward or _inside.backward:
            return inner(self, *args, **kwargs)
        place = _places.get(type(self))
        if place is None:
            place = _place(type(self))
        if place == _OPTIMIZER:
            _trains()
            return stepped(self, *args, **kwargs)
        if place == _REDUCER:
            return _operation(inner, "all_reduce", getattr(self, "allgather", None), self, args, kwargs, graph=True)
        if place == _WRAPPER:
            return inner(self, *args, **kwargs)
        span = None
        forward = False
        try:
            forward = executor.grad_flag() or self.requires_grad and self.training
            span = _forward() if forward else _evaluation(type(self), evaluation)
        except Exception as cause:  # pylint: disable=broad-except
            recorder.trouble("record a forward pass", cause)
        try:
            return inner(self, *args, **kwargs)
        finally:
            if forward:
                _inside.forward = 0
            elif span is not None:
                _outside.span = None
            if span is not None:
                span.end()

    __call__.__laggard__ = inner
    cell.__call__ = __call__


def _forward():
    _trains()
    _inside.forward = 1
    for action in modules.began:
        action()
    return Automatic(FP).begin()


def _evaluation(cls, word):
    """Begins the evaluation that is the outermost call of a cell, unless one is open."""
    if getattr(_outside, "span", None) is not None:
        return None
    _outside.span, _outside.cls = Automatic(OTHER, word).begin(), cls
    return _outside.span


def _trains():
    """What looked like an evaluation trains: its cell is one around the whole step."""
    span = getattr(_outside, "span", None)
    if span is not None:
        span.cancel()
        _places[_outside.cls] = _WRAPPER


def _place(cls):
    """Returns what the call of a cell of this class is."""
    place = _NETWORK
    for each in cls.__mro__:
        name = each.__module__ or ""
        if each.__name__ == "Optimizer" and name.startswith("mindspore."):
            place = _OPTIMIZER
        elif name == "mindspore.nn.wrap.grad_reducer":
            place = _REDUCER
        elif name.startswith("mindspore.nn.wrap.") or name == "mindspore.nn.loss.loss":
            place = _WRAPPER
        else:
            continue
        break
    if len(_places) < 10000:  # a script may make classes without end
        _places[cls] = place
    return place


def cover_optimizers(module):
    """Covers the making of an optimizer: a step waits for each."""
    optimizer = module.Optimizer
    made = hook.own(optimizer, "__init__")
    if hasattr(made, "__laggard__"):
        return

    @functools.wraps(made)
    def __init__(self, *args, **kwargs):
        made(self, *args, **kwargs)
        follow(steps.made, self)

    __init__.__laggard__ = made
    optimizer.__init__ = __init__


def cover_gradients(module):
    """Covers the backward pass of PyNative mode."""
    modules.cover_backward(module._PyNativeExecutor, "grad")


def cover_train(module):
    """Covers the events of Model.train."""
    frameworks.cover_events(module.CallbackManager, (
        ("on_train_begin", steps.own), ("on_train_step_begin", lambda _: steps.open()),
        ("on_train_step_end", steps.stepped), ("on_train_end", lambda _: steps.own(None))))


def cover_batches(module):
    """Covers the iterators of a dataset."""
    hook.own(module.Iterator, "__next__")
    loading.cover_next(module.Iterator)


def cover_operators(module):
    """Covers the operators of comm_ops that a script calls by themselves: those that its version has."""
    found = [(getattr(module, name), word) for name, word in _OPERATORS.items() if hasattr(module, name)]
    if not found:
        raise AttributeError("%s has no operator that is known" % module.__name__)
    for operator, word in found:
        if not hasattr(operator.__call__, "__laggard__"):
            operator.__call__ = _operator(operator.__call__, word)


def _operator(inner, word):
    @functools.wraps(inner)
    def __call__(self, *args, **kwargs):
        if _inside.collective:
            return inner(self, *args, **kwargs)
        return _operation(inner, word, self, self, args, kwargs)

    __call__.__laggard__ = inner
    return __call__


def _operation(inner, word, operator, owner, args, kwargs, graph=False):
    """Records the call of what communicates; operator knows the group. A graph is launched only."""
    span = None
    try:
        count, dtype = measure(args[0]) if args else (0, 0)
        group = getattr(operator, "group", "")
        name = groups.DEFAULT if group in _WORLDS else str(group)
        span = Automatic(COMMUNICATION, recorder.strings.id(word), count, dtype, recorder.strings.id(name)).begin()
    except Exception as cause:  # pylint: disable=broad-except
        recorder.trouble("record an operator of MindSpore", cause)
    _inside.collective += 1
    try:
        return inner(owner, *args, **kwargs)
    finally:
        _inside.collective -= 1
        if span is not None:
            span.end(None if not graph and _blocking() else -1)


def _blocking():
    """Reports whether a call returns when its work is done."""
    runtime = sys.modules.get("mindspore._c_expression")
    try:
        return runtime.RuntimeConf.get_instance().is_launch_blocking()
    except Exception:  # pylint: disable=broad-except
        return False  # a version that can't tell


def cover_groups(module):
    """Covers init and create_group."""
    def joined(_):
        recorder.rank_again()
        world = module.get_group_size()
        recorder.identity.join(module.get_rank(), world)
        groups.tell(groups.DEFAULT, range(world), "dp")

    def added(_, group, rank_ids, *_more, **_others):
        groups.tell(group, rank_ids)

    for name, action in (("init", joined), ("create_group", added)):
        inner = getattr(module, name)
        if not hasattr(inner, "__laggard__"):
            setattr(module, name, _then(inner, action))
            hook.everywhere(module, name, inner)


def _then(inner, action):
    @functools.wraps(inner)
    def covered(*args, **kwargs):
        result = inner(*args, **kwargs)
        follow(action, result, *args, **kwargs)
        return result

    covered.__laggard__ = inner
    return covered
