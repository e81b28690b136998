"""The switch: its state at start, and how it is followed."""

import jobs
from laggard import switch


class Start(jobs.Case):
    def test_grammar(self):
        for text, word in ((None, 3), ("", 3), ("on", 3), ("ON", 3), ("off", 0), ("Step", 1), ("FP,DataLoader", 1),
                           ("Step, FP, SaveCheckpoint, DataLoader", 1), ("CommunicationOperator", 3),
                           ("Step,CommunicationOperator", 3), ("Communication", 3)):
            self.assertEqual(switch.initial(text), (word, None), text)

    def test_a_wrong_word_leaves_all_on_and_is_reported(self):
        for text in ("Steps", "on,off", "Step;FP", ","):
            word, complaint = switch.initial(text)
            self.assertEqual(word, 3)
            self.assertIn(text, complaint)

    def test_off_makes_a_folder_and_no_records(self):
        self.python("""
            import laggard
            laggard.init()
            for i in range(10):
                with laggard.span("FP"): pass
                with laggard.communication("barrier"): pass
        """, LAGGARD_TRACE="off")
        p = self.process()
        self.assertEqual((p.records(), p.wanted, p.followed), ([], 0, 0))
        self.assertEqual(sum(sum(r.emitted) for r in p.rings), 0)

    def test_light_only(self):
        self.python("""
            import laggard
            laggard.init()
            with laggard.span("FP"): pass
            with laggard.communication("barrier"): pass
        """, LAGGARD_TRACE="Step,FP,SaveCheckpoint,DataLoader")
        p = self.process()
        self.assertEqual([r["kind"] for r in p.records()], ["FP"])
        self.assertEqual((p.wanted, p.followed), (1, 1))


class Follow(jobs.Case):
    def test_both_bits_and_the_generation_are_obeyed(self):
        self.python("""
            import glob, os, struct, laggard
            laggard.init()
            def round(n):
                with laggard.span("FP", tokens=n): pass
                with laggard.communication("barrier", count=n): pass
            round(1)
            fd = os.open(glob.glob(os.environ["LAGGARD_RUN"] + "/*/process")[0], os.O_RDWR)
            before = struct.unpack("<IIQ", os.pread(fd, 16, 128))
            def turn(word):
                os.pwrite(fd, struct.pack("<I", word), 128)
            turn(1 | 5 << 8); round(2)
            wanted, followed, at = struct.unpack("<IIQ", os.pread(fd, 16, 128))
            assert wanted == followed == (1 | 5 << 8), (wanted, followed)
            assert at > before[2]
            turn(0); round(3)
            across = laggard.span("FP", tokens=4).begin()   # begun off: never recorded
            turn(3); across.end(); round(5)
            across = laggard.span("FP", tokens=6).begin()   # begun on: recorded
            turn(0); across.end(); round(7)
            turn(2); round(8)
        """)
        p = self.process()
        self.assertEqual([r["value"] for r in p.records("FP")], [1, 2, 5, 6])
        self.assertEqual([r["value"] for r in p.records("Communication")], [1, 5, 8])
        self.assertEqual(p.followed, 2)
        self.assertEqual(p.opened(), [])
