"""NVIDIA's DALI, with the line of laggard's that the documentation has."""

import bed


class DALI(bed.Case):
    def test_pipeline_on_the_cpu(self):
        self.family("dali")
