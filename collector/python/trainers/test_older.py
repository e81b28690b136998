"""PyTorch before its process groups had hooks: steps, passes, batches and saves as in the
newest, and of the operations those of torch.distributed's functions and DDP's buckets.

What is not seen is listed here, to the last one. Left out of it is what DDP tells the other
ranks of its parameters while it is built (integers), and the parts of a call with objects,
which is one record of ours.

    LAGGARD_TRAINERS_TORCH   2.8, or 1.13: Debian's, of which DDP alone is run
"""

import collections
import os

import bed

VERSION = os.environ["LAGGARD_TRAINERS_TORCH"]


class Older(bed.Case):
    """Jobs of an older PyTorch."""

    def launch(self, launcher, script, world, arguments=(), **more):
        """Runs a job; PyTorch 1's torchrun writes no JSON of its own, so a loop starts the ranks."""
        if VERSION.startswith("1."):
            launcher = "forked"
        return super().launch(launcher, script, world, arguments, **more)

    def collectives(self, p, seen):
        """Checks that nothing is missed but what is listed."""
        have, need = bed.communications(self, p, seen)
        if VERSION.startswith("1."):  # the profiler tells no types
            have = by_size(have)
        missed, more = need - have, have - need
        whole = {key: n for key, n in missed.items() if key[3] not in ("int64", "int32", "uint8")}
        if VERSION.startswith("1."):  # one number of each rank, and what has no type: by their sizes
            whole = {key: n for key, n in whole.items() if key[0] != "allgather" and key[2] > 64}
        self.assertEqual(whole, self.not_seen)
        self.assertEqual([key for key in more if "object" not in key[0]], [])

    def run_family(self, script, *arguments, not_seen=None):
        """Runs a family and notes it under this version."""
        self.not_seen = not_seen or {}
        return self.family(script, arguments, name="%s@%s" % (script, VERSION))

    def test_ddp(self):
        self.run_family("ddp")


def by_size(counted):
    """Returns operations counted without their types."""
    found = collections.Counter()
    for key, n in counted.items():
        found[(*key[:3], "")] += n
    return found


def test(script, arguments, missed):
    """Returns a test that runs a family."""
    def run(self):
        self.run_family(script, *arguments, not_seen=missed)
    return run


if not VERSION.startswith("1."):
    for _name, _script, *_arguments in (
            ("accumulation", "accumulate"), ("gan", "gan"), ("scaler", "scaler"), ("overflow", "overflow"), ("fsdp1", "fsdp1"),
            ("fsdp2", "fsdp2"), ("data", "data"), ("saves", "saves", "thread"), ("pipelining", "pipelined", "1F1B"),
            ("zero_1", "deepspeed_zero", "1"), ("zero_2", "deepspeed_zero", "2"), ("zero_3", "deepspeed_zero", "3"),
            ("megatron", "megatron_core"), ("lightning", "lightning_automatic"), ("lightning_manual", "lightning_manual"),
            ("transformers", "hf_trainer"), ("accelerate", "accelerated")):
        setattr(Older, "test_" + _name, test(_script, _arguments, {}))
    for _name, _script, _missed in (("dtensor", "tensor_parallel", {("allreduce", 2, 16, "fp32"): 8}),
                                    ("compile", "compiled", {("allreduce", 2, 24, "fp32"): 6})):
        setattr(Older, "test_" + _name, test(_script, (), _missed))
