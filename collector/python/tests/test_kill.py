"""SIGKILL at random instants: nothing that was emitted is lost, nothing is corrupt,
and the open range is named.

Who is killed is a fork that opens a recorder of its own, as DataLoader workers and
spawned ranks do: an interpreter's start would be nine tenths of a kill. Half of the
instants are counted from the start of the recorder, half from the first records of
any thread: one among 64 may have to wait long for its turn.

LAGGARD_TEST_KILLS is how often with one thread (60; a sixth of it with 8, a thirtieth
with 64, all of it with LAGGARD_TEST_KILLS_EACH=1), LAGGARD_TEST_SEED what the instants
come from.
"""

import mmap
import os
import random
import select
import shutil
import signal
import struct
import sys
import threading
import time

import jobs  # also puts the package on the path
import rings
import laggard  # once, before the forks: no ring is made yet
from laggard import extension, layout, recorder

KILLS = int(os.environ.get("LAGGARD_TEST_KILLS", "60"))
SHARE = {8: 1, 64: 1} if os.environ.get("LAGGARD_TEST_KILLS_EACH") == "1" else {8: 6, 64: 30}
THREADS = 64  # rows of acknowledged counts
STARTS = 120  # seconds; a child that has not begun by then hangs
SEED = int(os.environ.get("LAGGARD_TEST_SEED", str(random.SystemRandom().randrange(1 << 32))))


def emit(run, acknowledged, threads, began):
    """The child: records without end and says what it has recorded; began gets a byte
    when it starts and one at each thread's first records."""
    os.environ["LAGGARD_RUN"] = run
    laggard.init(rank=0, world_size=1, job="kill", node="n")
    gate, parent = threading.Event(), os.getppid()
    counts = memoryview(acknowledged).cast("Q")  # one store each: pack_into writes zeros first

    def work(n):
        light = bulk = 0
        gate.wait()
        outer = laggard.step(n).begin()  # open until the end
        ring = recorder.local.ring
        fd = os.open(os.path.join(recorder._process.folder, "ring-%d" % ring.number), os.O_RDWR)
        behind = layout.fit(ring.number, 1 << 30)[0] // 2
        counts[8 * n + 2] = ring.number
        while True:
            with laggard.span("FP", tokens=light):
                pass
            light += 1
            counts[8 * n] = light
            with laggard.span("DataLoader"):  # nothing but its times: a way of its own
                pass
            light += 1
            counts[8 * n] = light
            with laggard.communication("all_reduce", "dp0", bulk, "bf16"):
                pass
            bulk += 1
            counts[8 * n + 1] = bulk
            if bulk == 1:
                os.write(began, b"f")
            if light % (behind // 2) == 0 and light > behind:  # an agent that is half a ring behind
                os.pwrite(fd, struct.pack("<Q", light - behind), 128)
                os.pwrite(fd, struct.pack("<Q", max(bulk - behind, 0)), 256)
                if os.getppid() != parent:  # the test was killed itself
                    os._exit(1)
        outer.end()

    for n in range(1, threads):
        threading.Thread(target=work, args=(n,), daemon=True).start()
    os.write(began, b"s")
    gate.set()
    work(0)


class Kill(jobs.Case):
    def test_one_thread(self):
        self.kills(KILLS, 1)

    def test_eight_threads(self):
        self.kills(KILLS // SHARE[8], 8)

    def test_sixty_four_threads(self):
        self.kills(KILLS // SHARE[64], 64)

    def kills(self, count, threads):
        dice = random.Random(SEED + threads)
        how = "the extension" if extension.native is not None else "Python alone"
        sys.stderr.write("%d kills with %d threads, %s, LAGGARD_TEST_SEED=%d\n" % (count, threads, how, SEED))
        acknowledged = mmap.mmap(-1, 64 * THREADS)
        wrong = 0
        for n in range(count):
            acknowledged[:] = bytes(64 * THREADS)
            run = os.path.join(self.run_dir, str(n))
            told, began = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    emit(run, acknowledged, threads, began)
                finally:
                    os._exit(1)
            os.close(began)
            try:
                self.wait_began(told, dice.randrange(1, 3))
                time.sleep(dice.random() * 0.002 * max(threads, 4))  # the instant: what is tested
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                os.close(told)
            with self.subTest(kill=n, seed=SEED):
                wrong += 1
                self.check(run, acknowledged, threads)
                wrong -= 1
            shutil.rmtree(run, ignore_errors=True)
            if n % 500 == 499:
                sys.stderr.write("%d of %d kills checked, %d wrong\n" % (n + 1, count, wrong))

    def wait_began(self, told, count):
        """Waits until the child has written so many bytes."""
        while count > 0:
            self.assertTrue(select.select([told], [], [], STARTS)[0], "child does not start")
            got = os.read(told, count)
            self.assertTrue(got, "child died")
            count -= len(got)

    def check(self, run, acknowledged, threads):
        found = rings.load(run)
        if not found:  # killed before its folder was complete
            self.assertEqual(bytes(acknowledged[0:64 * threads]), bytes(64 * threads))
            return
        self.assertEqual(len(found), 1)
        process = found[0]
        by_number = {ring.number: ring for ring in process.rings}
        for n in range(threads):
            light, bulk, number = struct.unpack_from("<QQQ", acknowledged, 64 * n)
            if not number:
                continue  # had not begun
            ring = by_number[number]
            self.assertEqual(ring.corrupt, [])
            self.assertEqual(sum(ring.dropped), 0)
            # The step is not published: the light ring holds FP and DataLoader in turns.
            self.assertIn(ring.heads[0] - light, (0, 1), "light: %d acknowledged" % light)
            self.assertIn(ring.heads[1] - bulk, (0, 1), "bulk: %d acknowledged" % bulk)
            for lane in (0, 1):
                records = [r for r in ring.records if r["ring"] == 2 * number - 1 + lane]
                numbers = list(range(ring.tails[lane], ring.heads[lane]))
                self.assertEqual([r["seq"] for r in records], numbers)
                if lane == 0:
                    self.assertEqual([r["kind"] for r in records], [("FP", "DataLoader")[n & 1] for n in numbers])
                    numbers = [0 if n & 1 else n for n in numbers]
                self.assertEqual([r["value"] for r in records], numbers)
            kinds = [r["kind"] for r in ring.open]
            self.assertEqual(kinds[:1], ["Step"])
            self.assertEqual(ring.open[0]["step"], n)
            self.assertLessEqual(len(kinds), 2)
