"""What may come between two stores of a range in Python alone: death, a signal handler's
ranges, its exception, a fork.

A call is where a signal handler runs, another thread goes on or a fork happens. Here
the clock and the checksum are such a call that does what the test asks for.
"""

import jobs

BEGIN = """
import laggard, os, signal
from laggard import pure, recorder, ring
laggard.init()
laggard.mark("first")
for _ in range(2):
    with laggard.span("FP"): pass
def at(place, action):
    module, name = {"begin": (ring, "_monotonic"), "end": (pure, "_monotonic"), "sum": (ring, "_total")}[place]
    real = getattr(module, name)
    def call(*arguments):
        setattr(module, name, real)
        value = real(*arguments)
        action()
        return value
    setattr(module, name, call)
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
    before = image()
    os.write(gate[1], b".")
    assert os.waitpid(child, 0)[1] == 0
    assert image() == before, "the child has written into its parent's ring"
    a.end()
def image():
    with open(os.path.join(recorder._process.folder, "ring-1"), "rb") as f:
        return f.read()
children, gate = [], os.pipe()
recorder.state.step = 1
"""


class Between(jobs.Case):
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
                ('at("begin", die); laggard.span("FP").begin()', [], []),
                ('at("sum", die); laggard.span("FP").begin()', [], []),
                ('a = laggard.span("FP").begin(); die()', [], ["FP"]),
                ('a = laggard.span("FP").begin(); at("end", die); a.end()', [], ["FP"]),
                ('a = laggard.span("FP").begin(); at("sum", die); a.end()', [], ["FP"]),
                ('a = laggard.span("FP").begin(); a.end(); die()', ["FP"], []),
                # A handler's records are put off until the range's is out.
                ('a = laggard.span("FP").begin(); at("sum", lambda: (other(), die())); a.end()',
                 [], ["FP", "DataLoader", "DataLoader"]),
                ('a = laggard.span("FP").begin(); at("end", lambda: (other(), die())); a.end()',
                 ["DataLoader"] * 2, ["FP"]),
                ("""
def fail():
    raise KeyboardInterrupt
a = laggard.span("FP").begin()
at("sum", fail)
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
for call in "end", "sum":
    a = laggard.span("FP").begin()
    at(call, other)
    a.end()
at("begin", other)
with laggard.span("FP"): pass
""")
        before = ["DataLoader", "DataLoader", "FP"]
        self.check(self.process(), before + before[::-1] + before)

    def test_ended_or_cancelled_in_between(self):
        self.run_script("""
for call in "end", "sum":
    for action in "end", "cancel":
        a = laggard.span("FP").begin()
        at(call, getattr(a, action))
        a.end()
        laggard.mark(action)
""")
        self.check(self.process(), ["FP", "end", "cancel", "FP", "end", "FP", "cancel"])

    def test_an_exception_in_between(self):
        self.run_script("""
def fail():
    raise KeyboardInterrupt
for call in "end", "sum":
    a = laggard.span("FP").begin()
    at(call, fail)
    try:
        a.end()
    except KeyboardInterrupt:
        laggard.mark(call)
at("begin", fail)
try:
    laggard.span("FP").begin()
except KeyboardInterrupt:
    with laggard.span("FP"): pass
""")
        self.check(self.process(), ["end", "sum", "FP"])

    def test_a_forked_child_leaves_the_ring_alone(self):
        self.run_script("""
for call in "end", "sum":
    a = laggard.span("FP").begin()
    at(call, fork)
    a.end()
    whose()
at("begin", fork)
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
        self.check_family([], ["FP"], own=3)

    def check_family(self, kinds, opened=(), own=1):
        """The parent's folder as it is without children, its own ranges in each child's."""
        found = jobs.rings.load(self.run_dir)
        parent = min(found, key=lambda p: p.started)
        self.check(parent, kinds, opened)
        self.assertEqual([r["step"] for r in parent.opened()], [1 for _ in opened])
        for p in found:
            if p is not parent:
                self.assertEqual([r["kind"] for r in p.records()], ["FP"] * own)
                self.assertEqual(p.opened(), [])
