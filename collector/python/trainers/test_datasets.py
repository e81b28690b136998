"""Hugging Face's streaming datasets, with the line of laggard's that the documentation has."""

import bed


class Datasets(bed.Case):
    def test_streams(self):
        self.family("streams")
