"""One rank of four that computes more, and a healthy job, under MindSpore's launcher."""

import culprits


class MindSpore(culprits.Case):
    def test_a_slow_rank(self):
        self.check("mindspore_functions", True, launcher="msrun")

    def test_healthy(self):
        self.check("mindspore_functions", False, launcher="msrun")
