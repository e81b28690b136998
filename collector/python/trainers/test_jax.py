"""JAX on the CPU, in processes that meet by jax.distributed.initialize."""

import bed
import removed_others


class JAX(bed.Case):
    def run_family(self, how):
        """Runs the job with one kind of ranges; returns (rank, truth) pairs."""
        return self.family("jax_steps", (how,), ("loop", "loop"), "jax_" + how)

    def test_annotations(self):
        for p, _ in self.run_family("annotated"):
            compiled = p.records("compile")
            self.assertGreater(len(compiled), 2)
            self.assertTrue(any(r["step"] == 0 for r in compiled))
            self.assertEqual([r["step"] for r in p.records("SaveCheckpoint")], [3])
            self.assertEqual(p.meta["world_size"], 2)

    def test_by_hand(self):
        for p, _ in self.run_family("by_hand"):
            self.assertTrue(all(r["exposed"] == r["dur"] for r in p.records("Communication")))

    def test_each_hook_point_removed(self):
        self.removed("jax", removed_others.POINTS["jax"])
