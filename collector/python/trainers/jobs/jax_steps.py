"""JAX on several processes: local gradients, their mean over all, a step by hand. What it says of
itself is JAX's own annotations, or laggard's ranges, as the argument says."""

import contextlib
import os
import sys

import jax

how, rank, world = sys.argv[1], int(os.environ["PROCESS"]), int(os.environ["PROCESSES"])
os.environ.setdefault("NODE_NAME", "node-%d" % rank)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize("127.0.0.1:" + os.environ["MEETING"], world, rank)

import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

import load  # noqa: E402
import shared  # noqa: E402

if how == "annotated":
    step, span = lambda n: jax.profiler.StepTraceAnnotation("train", step_num=n), jax.profiler.TraceAnnotation
elif "LAGGARD_AUTO" in os.environ:
    import laggard
    step, span = laggard.step, laggard.span
else:
    step = span = contextlib.nullcontext


def communication(count):
    """Returns what lies around the gather: annotations know of no operations."""
    if how == "annotated" or "LAGGARD_AUTO" not in os.environ:
        return contextlib.nullcontext()
    return laggard.communication("all_gather", "default", count, "fp32")


@jax.jit
def gradient(weights, x, y):
    """Returns the loss and its gradient."""
    return jax.value_and_grad(lambda w: jnp.square(jnp.tanh(x @ w["a"]) @ w["b"] - y).mean())(weights)


random = numpy.random.RandomState(7)
weights = {"a": jnp.asarray(random.randn(8, 16), jnp.float32), "b": jnp.asarray(random.randn(16, 1), jnp.float32)}
square = jnp.ones((160, 160))
product = jax.jit(jnp.matmul)
iterations = shared.iterations(8)
source = iter(shared.batches(iterations, rank))
losses, operations = [], []
for n in range(iterations):
    with step(n):
        with span("DataLoader"):
            x, y = next(source)
        with span("FP"):
            load.work(rank, lambda: product(square, square).block_until_ready())
            loss, found = jax.block_until_ready(gradient(weights, x, y))
        flat = jnp.concatenate([found["a"].ravel(), found["b"].ravel()])
        with communication(flat.size):
            mean = multihost_utils.process_allgather(flat).mean(axis=0)
        if how != "annotated":
            operations.append(("all_gather", world, flat.size, "fp32"))
        weights = {"a": weights["a"] - 0.01 * mean[:128].reshape(8, 16), "b": weights["b"] - 0.01 * mean[128:].reshape(16, 1)}
        losses.append(loss)
        if n == 3:
            with span("SaveCheckpoint"):
                numpy.savez("jax-%d.npz" % rank, **weights)
        shared.rest()
shared.finish(rank, losses, iterations, operations, forwards=iterations, batches=iterations, saves=1)
jax.distributed.shutdown()
