"""Kept slots (schemas/FORMAT.md, section 2.2): what may come between two of their stores.

A call is where a signal handler runs, another thread goes on or a fork happens. Here
the clock and the checksum are such a call that does what the test asks for.
"""

import unittest

import jobs  # also puts the package on the path
from laggard import ring

BEGIN = """
import laggard, os, signal
from laggard import recorder, ring
laggard.init()
laggard.mark("first")
for _ in range(2):
    with laggard.span("FP"): pass
def at(name, action):
    real = getattr(ring, name)
    def call(*arguments):
        setattr(ring, name, real)
        value = real(*arguments)
        action()
        return value
    setattr(ring, name, call)
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def other():
    with laggard.span("DataLoader"): pass
    with laggard.span("DataLoader"): pass
def fork():
    child = os.fork()
    children.append(child)
    if not child:
        os.read(gate[0], 1)      # until the parent has gone on
def whose():
    child = children.pop()
    if not child:                # ends here, after a range of its own
        with laggard.span("FP"): pass
        assert laggard.failures() == 0
        os._exit(0)
    recorder.state.step += 1
    with laggard.span("FP"): pass
    a = laggard.span("FP").begin()
    os.write(gate[1], b".")
    assert os.waitpid(child, 0)[1] == 0
    a.end()
children, gate = [], os.pipe()
recorder.state.step = 1
"""


@unittest.skipUnless(ring.UNBROKEN, "before CPython 3.10 there are none: every range goes the long way")
class Kept(jobs.Case):
    def run_script(self, text, code=0):
        self.python(BEGIN + text, code=code, LAGGARD_EXTENSION="0")

    def check(self, p, kinds, opened=()):
        """One record of each kind after the first three, those ranges open, all whole."""
        own = p.rings[0]
        self.assertEqual([r["kind"] for r in own.records], ["first", "FP", "FP"] + list(kinds))
        self.assertEqual([r["kind"] for r in p.opened()], list(opened))
        self.assertEqual(own.corrupt, [])
        starts = [r["start"] for r in own.records if r["kind"] == "FP"]
        self.assertEqual(starts, sorted(set(starts)))
        self.assertEqual(sum(own.emitted), len(own.records))

    def test_killed_between_the_stores(self):
        for n, (text, kinds, opened) in enumerate((
                ('at("_monotonic", die); laggard.span("FP").begin()', [], []),
                ('a = laggard.span("FP").begin(); die()', [], ["FP"]),
                ('a = laggard.span("FP").begin(); at("_monotonic", die); a.end()', [], ["FP"]),
                ('a = laggard.span("FP").begin(); at("_total", die); a.end()', [], ["FP"]),
                ('a = laggard.span("FP").begin(); a.end(); die()', ["FP"], []),
                # A handler's records take the number that the range's was made with.
                ('a = laggard.span("FP").begin(); at("_total", lambda: (other(), die())); a.end()',
                 ["DataLoader"] * 2, ["FP"]),
                ('a = laggard.span("FP").begin(); at("_monotonic", lambda: (other(), die())); a.end()',
                 ["DataLoader"] * 2, ["FP"]),
                ("""
def fail():
    raise KeyboardInterrupt
a = laggard.span("FP").begin()
at("_total", fail)
try:
    a.end()
except KeyboardInterrupt:
    die()""", [], []))):
            with self.subTest(text):
                self.run_dir = "%s-%d" % (self.run_dir, n)
                self.addCleanup(jobs.shutil.rmtree, self.run_dir, ignore_errors=True)
                self.run_script(text, code=-9)
                self.check(self.process(), kinds, opened)

    def test_records_in_between(self):
        self.run_script("""
for call in "_monotonic", "_total":
    a = laggard.span("FP").begin()
    at(call, other)
    a.end()
at("_monotonic", other)
with laggard.span("FP"): pass
""")
        self.check(self.process(), ["DataLoader", "DataLoader", "FP"] * 3)

    def test_ended_or_cancelled_in_between(self):
        self.run_script("""
for call in "_monotonic", "_total":
    for action in "end", "cancel":
        a = laggard.span("FP").begin()
        at(call, getattr(a, action))
        a.end()
        laggard.mark(action)
""")
        self.check(self.process(), ["FP", "end", "cancel"] * 2)

    def test_an_exception_in_between(self):
        self.run_script("""
def fail():
    raise KeyboardInterrupt
for call in "_monotonic", "_total":
    a = laggard.span("FP").begin()
    at(call, fail)
    try:
        a.end()
    except KeyboardInterrupt:
        laggard.mark(call)
at("_monotonic", fail)
try:
    laggard.span("FP").begin()
except KeyboardInterrupt:
    with laggard.span("FP"): pass
""")
        self.check(self.process(), ["_monotonic", "_total", "FP"])

    def test_a_forked_child_leaves_the_slot_alone(self):
        self.run_script("""
for call in "_monotonic", "_total":
    a = laggard.span("FP").begin()
    at(call, fork)
    a.end()
    whose()
at("_monotonic", fork)
with laggard.span("FP"):
    pass
whose()
a = laggard.span("FP").begin()
fork()
a.end()
whose()
""")
        self.check_family(["FP"] * 12)

    def test_a_forked_child_begins_what_its_parent_made(self):
        self.run_script("""
made, a = laggard.span("FP"), laggard.span("FP").begin()
fork()
if not children[0]:
    recorder.state.step = 7
    del a
    for _ in range(2):
        made.begin()
        made.end()
    whose()
os.write(gate[1], b".")
assert os.waitpid(children[0], 0)[1] == 0
die()
""", code=-9)
        self.check_family([], ["FP"])

    def check_family(self, kinds, opened=()):
        """The parent's folder as it is without children, one range in each child's."""
        found = jobs.rings.load(self.run_dir)
        parent = min(found, key=lambda p: p.started)
        self.check(parent, kinds, opened)
        self.assertEqual([r["step"] for r in parent.opened()], [1 for _ in opened])
        for p in found:
            if p is not parent:
                self.assertEqual([r["kind"] for r in p.records()], ["FP"])
                self.assertEqual(p.opened(), [])

    def test_a_kind_that_rests_is_not_open(self):
        """Its record is overwritten by later laps."""
        self.run_script("""
other()
fd = os.open(os.path.join(recorder._process.folder, "ring-1"), os.O_RDWR)
for _ in range(1100):
    with laggard.span("FP"): pass
    os.pwrite(fd, os.pread(fd, 8, 64), 128)
laggard.span("rollout").begin()
die()
""", code=-9)
        p = self.process()
        self.assertEqual([r["kind"] for r in p.opened()], ["rollout"])
        self.assertEqual((p.rings[0].emitted[2], p.rings[0].corrupt), (1102, []))

    def test_the_numbers_end(self):
        """Past 2^31 the slots can't hold them: all goes the long way."""
        self.run_script("""
ring._QUICK = 6
for _ in range(4):
    with laggard.span("FP"): pass
laggard.mark("last", 1)
a = laggard.span("FP").begin()
assert a.slot > 0, "it knows of itself where it is listed"
laggard.span("DataLoader").begin().end()
die()
""", code=-9)
        self.check(self.process(), ["FP"] * 4 + ["last", "DataLoader"], ["FP"])
