"""One rank of four that computes more is the only one that `laggard analyze` names; a
healthy job names nobody. What is judged is what the agent wrote while the job ran.

    LAGGARD_TRAINERS_TORCH   an older PyTorch, see test_older.py
"""

import json
import os

import culprits

VERSION = os.environ.get("LAGGARD_TRAINERS_TORCH", "")

FAMILIES = {"ddp": ("ddp",), "fsdp2": ("fsdp2",), "dtensor": ("tensor_parallel",), "deepspeed": ("deepspeed_zero", "2"),
            "megatron": ("megatron_core",), "lightning": ("lightning_automatic",), "transformers": ("hf_trainer",),
            "accelerate": ("accelerated",)}
if VERSION.startswith("1."):
    FAMILIES = {"ddp": ("ddp",)}


class Culprits(culprits.Case):
    """A job of each family, with a slow rank and without."""


culprits.add(Culprits, FAMILIES)
if VERSION.startswith("2."):
    def nothing_seen(self):
        """DTensor's operations are not seen before 2.15: a job without a culprit is undecided."""
        found, _ = self.judged("tensor_parallel", False)
        self.assertEqual((found["nodes"], found["decided"]), ([], False), json.dumps(found))
    Culprits.test_dtensor_healthy = nothing_seen
