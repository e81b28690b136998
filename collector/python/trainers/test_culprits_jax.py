"""One rank of four that computes more, and a healthy job, in JAX's processes."""

import culprits


class JAX(culprits.Case):
    def test_a_slow_rank(self):
        self.check("jax_steps", True, ("by_hand",), "loop")

    def test_healthy(self):
        self.check("jax_steps", False, ("by_hand",), "loop")
