"""Checkpoints: each once, and those off the training thread cost a step nothing."""

import bed


class Saves(bed.Case):
    def test_in_a_thread(self):
        self.check("thread")

    def test_in_a_process(self):
        self.check("process")

    def check(self, how):
        for p, truth in self.family("saves", arguments=(how,)):
            saved = p.records("SaveCheckpoint")
            self.assertEqual([s["step"] for s in saved], [3, 5, 5, 7])  # the last: async_save's staging
            behind = p.records("background save")
            self.assertEqual(len(behind), 2 if how == "thread" else 1)
            longest = max(behind, key=lambda r: r["dur"])
            self.assertGreater(longest["dur"], 4 * 10**8)
            over = [s for s in p.records("SaveCheckpoint") if s["start"] < longest["start"] + longest["dur"] and
                    s["start"] >= longest["start"]]
            self.assertLess(sum(s["dur"] for s in over if s["step"] == longest["step"]), longest["dur"])
