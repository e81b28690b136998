"""What removed does for PyTorch, for MindSpore and JAX: trains one process without us, with
us, or with one hook point taken away. Prints a line of JSON.

    removed_others.py FRAMEWORK [with [POINT]]
"""

import importlib
import json
import sys

import numpy

from hookpoints import remove

POINTS = {
    "mindspore": (
        "mindspore.nn.cell:Cell.__call__",
        "mindspore.nn.cell:_pynative_executor",
        "mindspore.nn.optim.optimizer:Optimizer.__init__",
        "mindspore.graph.api:_PyNativeExecutor.grad",
        "mindspore.train.callback._callback:CallbackManager.on_train_step_end",
        "mindspore.dataset.engine.iterators:Iterator.__next__",
        "mindspore.ops.operations.comm_ops:AllReduce",
        "mindspore.communication.management:init",
        "mindspore.train.serialization:save_checkpoint",
        "mindspore._c_expression:RuntimeConf",
    ),
    "jax": (
        "jax._src.profiler:TraceAnnotation",
        "jax._src.profiler:StepTraceAnnotation",
        "jax._src.monitoring:register_event_duration_secs_listener",
        "jax._src.distributed:State.initialize",
    ),
}


def mindspore():
    """Trains with MindSpore by functions; returns its losses."""
    import mindspore as ms
    from mindspore import nn
    ms.set_seed(7)
    network, mean_square = nn.Dense(4, 1), nn.MSELoss()
    optimizer = nn.Adam(network.trainable_params(), 1e-2)
    step = ms.value_and_grad(lambda x, y: mean_square(network(x), y), None, optimizer.parameters)
    random, losses = numpy.random.RandomState(7), []
    data = [(random.randn(2, 4).astype("float32"), random.randn(2, 1).astype("float32")) for _ in range(3)]
    for x, y in ms.dataset.GeneratorDataset(data, ["x", "y"], shuffle=False).create_tuple_iterator():
        loss, gradients = step(x, y)
        optimizer(gradients)
        losses.append(float(loss.asnumpy()).hex())
    ms.save_checkpoint(network, "removed.ckpt")
    return losses


def jax():
    """Trains with JAX; returns its losses."""
    import jax as framework
    from jax import numpy as jnp
    weights, losses = jnp.ones(4), []
    step = framework.jit(framework.value_and_grad(lambda w, x: jnp.square(x @ w).mean()))
    random = numpy.random.RandomState(7)
    for n in range(3):
        with framework.profiler.StepTraceAnnotation("train", step_num=n), framework.profiler.TraceAnnotation("FP"):
            loss, gradient = step(weights, random.randn(2, 4).astype("float32"))
        weights -= 0.1 * gradient
        losses.append(float(loss).hex())
    return losses


def main(framework, recorded="", point=""):
    """Trains; returns the exit code."""
    importlib.import_module(framework)
    if framework == "jax":
        importlib.import_module("jax.profiler")
    removed = remove(point) if point else None
    failures = 0
    if recorded:
        import laggard
        laggard.init(auto=True)
    if removed is not None and removed[1] not in vars(removed[0]):
        setattr(*removed)  # the framework itself needs it; we came before it was back
    losses = {"mindspore": mindspore, "jax": jax}[framework]()
    if recorded:
        from laggard import recorder
        recorder.close()
        failures = laggard.failures()
    print(json.dumps({"losses": losses, "failures": failures}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
