"""MindSpore on the CPU under its own launcher: by functions, and by Model.train in both modes."""

import bed
import removed_others


class MindSpore(bed.Case):
    def run_family(self, script, *arguments):
        """Runs a family under msrun both times."""
        return self.family(script, arguments, ("msrun", "msrun"), "_".join((script,) + arguments))

    def test_functions(self):
        for p, truth in self.run_family("mindspore_functions"):
            found = p.records("Communication")
            self.assertTrue(all(r["exposed"] == r["dur"] for r in found), found)  # it launches blocking
            self.assertEqual([r["step"] for r in p.records("SaveCheckpoint")], [4])
            self.assertEqual([(g["name"], g["dim"], g["ranks"]) for g in p.meta["groups"]], [("default", "dp", [0, 1])])

    def test_model_in_pynative_mode(self):
        for p, _ in self.run_family("mindspore_model", "pynative"):
            self.assertFalse(any("exposed" in r for r in p.records("Communication")))  # it launches and goes on
        self.clean()
        truths, said = self.launch("msrun", "mindspore_model", 2, ("pynative", "callback"), LAGGARD_AUTO="1")
        self.assertEqual([t["losses"] for t in truths], [t["losses"] for t in self.without])
        for p, truth in zip(self.processes(), truths):
            self.rank(p, truth)

    def test_model_in_graph_mode(self):
        self.run_family("mindspore_model", "graph")

    def test_each_hook_point_removed(self):
        self.removed("mindspore", removed_others.POINTS["mindspore"])
