"""How deep a thread is in what. The extension has it, too: looked at so often, it counts."""

import threading

from .extension import native


class Inside(threading.local):
    """The numbers of the calling thread."""

    forward = 0     # an outermost forward pass
    backward = 0    # a backward pass
    collective = 0  # a torch.distributed call
    calls = 0       # of those so far
    coalescing = 0  # what a coalescing manager puts off
    optimizer = 0   # an optimizer's step
    saving = 0      # a save; 2: one that no step waits for


if native is not None:
    Inside = native.Inside
