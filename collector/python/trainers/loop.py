"""Starts a script N times, as a cluster without a launcher does: each process is told its
number and where they meet, by names that only the script knows.

    loop.py N PORT SCRIPT [ARGUMENT…]
"""

import os
import subprocess
import sys


def main(world, port, command):
    """Starts the processes and waits; returns how many failed."""
    started = []
    for number in range(world):
        place = dict(os.environ, PROCESS=str(number), PROCESSES=str(world), MEETING=port)
        started.append(subprocess.Popen([sys.executable] + command, env=place))
    return sum([each.wait() != 0 for each in started])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
