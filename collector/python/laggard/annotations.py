"""JAX: what a script says of itself for JAX's own profiler, and what JAX says of its compiler.

    jax._src.profiler     StepTraceAnnotation(name, step_num=n): Step n. TraceAnnotation(name),
                          annotate_function: a range, FP and the other kinds by their words
    jax._src.monitoring   the duration of each compilation: a range `compile`
    jax._src.distributed  rank and job of a process that has called jax.distributed.initialize

A jitted function is launched and runs on: an annotation around it is the time of the
launch unless the script waits inside (block_until_ready). What lies inside a compiled
function, collectives say, is not seen.
"""

import functools

from . import clock
from . import groups
from . import layout
from . import recorder
from .span import Automatic, elsewhere
from .steps import follow

_COMPILED = "/jax/core/compile/backend_compile_duration"


def cover_profiler(module):
    """Covers the annotations: they are context managers of C++."""
    base, step = module.TraceAnnotation, module.StepTraceAnnotation
    if "__laggard__" in vars(base):
        return
    made, enter, leave = base.__init__, base.__enter__, base.__exit__

    @functools.wraps(made)
    def __init__(self, name, **kwargs):
        made(self, name, **kwargs)
        self._laggard = str(name), kwargs.get("step_num"), None

    @functools.wraps(enter)
    def __enter__(self):
        name, number, _ = self._laggard
        span = follow(_range, name, number if isinstance(self, step) else None)
        self._laggard = name, number, span
        return enter(self)

    @functools.wraps(leave)
    def __exit__(self, *exception):
        try:
            return leave(self, *exception)
        finally:
            name, number, span = self._laggard
            self._laggard = name, number, None
            if span is not None:
                span.end()

    base.__init__, base.__enter__, base.__exit__ = __init__, __enter__, __exit__
    base.__laggard__ = made


def _range(name, number):
    """Begins the range of an annotation."""
    if number is not None:
        from . import step
        return step(int(number)).begin()
    kind = layout.KINDS.get(name, layout.OTHER)
    return Automatic(kind, recorder.strings.id(name) if kind == layout.OTHER else 0).begin()


def cover_monitoring(module):
    """Listens to the durations that JAX tells."""
    def listen(event, duration, **_):
        if event == _COMPILED:
            follow(_compiled, duration)

    if not hasattr(module.register_event_duration_secs_listener, "__laggard__"):
        module.register_event_duration_secs_listener.__laggard__ = True
        module.register_event_duration_secs_listener(listen)


def _compiled(seconds):
    """Records a compilation that has just ended."""
    span, dur = Automatic(layout.OTHER, recorder.strings.id("compile")), int(seconds * 1e9)
    elsewhere(span.begin(), clock.now() - dur, dur)


def cover_distributed(module):
    """Covers initialize: it knows which of how many processes this is, and their meeting place."""
    state = module.State
    inner = state.initialize
    if hasattr(inner, "__laggard__"):
        return

    @functools.wraps(inner)
    def initialize(self, *args, **kwargs):
        result = inner(self, *args, **kwargs)
        follow(_joined, self)
        return result

    initialize.__laggard__ = inner
    state.initialize = initialize


def _joined(state):
    recorder.rank_again()
    recorder.identity.join(state.process_id, state.num_processes, state.coordinator_address)
    groups.tell(groups.DEFAULT, range(state.num_processes), "dp")
