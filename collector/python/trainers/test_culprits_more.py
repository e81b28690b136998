"""The same of what PyTorch has besides: FSDP1, stages of a pipeline, compiled graphs, saves
off the training thread."""

import json

import culprits


class Culprits(culprits.Case):
    """A job of each, with a slow rank and without."""

    def test_operation_in_a_graph_with_a_slow_rank(self):
        """A graph's own waits are not seen: all forward passes are as long. Nobody is named, and
        nothing is called healthy; whom the others wait for is said."""
        found, _ = self.judged("compiled", True)
        self.assertEqual((found["nodes"], found["decided"], found["healthy"]), ([], False, False), json.dumps(found))
        said = [f["detail"] for f in found["findings"] if f["kind"] == "low-coverage"]
        self.assertTrue(any(detail.startswith("rank %d is " % culprits.SLOW) for detail in said), said)

    def test_operation_in_a_graph_healthy(self):
        self.check("compiled", False)


culprits.add(Culprits, {"fsdp1": ("fsdp1",), "compile": ("compiled", "outside"), "saves": ("saves", "thread")})
# A rank needs others of its stage to be compared with.
culprits.add(Culprits, {"pipelining": ("pipelined", "1F1B")}, world=8)
