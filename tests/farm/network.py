"""A farm over real links: scheduler and run here, each of two workers in a network of its own.

`unshare --net python -m tests.farm.network FOLDER`, in a network that nobody else is in. A worker's
link is taken down in the middle and comes back, and the other one freezes and goes on. Prints a
line of JSON for each: trials that were asked for and came back right, the longest time without an
answer, and workers in the end.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.farm.conftest import order, place_in, until


def main():
    with place_in(Path(sys.argv[1]), host="0.0.0.0") as place:
        workers = [joined(place, number) for number in (1, 2)]
        with place.farm("linked", workers=2, wait_timeout=60.0) as (farm, _):
            link = ("ip", "link", "set", "farm1")
            told(
                farm, "link",
                lambda: ip(*link, "down"), lambda: ip(*link, "up"),
            )  # fmt: skip
            told(
                farm, "freeze",
                lambda: workers[1].send_signal(signal.SIGSTOP),
                lambda: workers[1].send_signal(signal.SIGCONT),
            )  # fmt: skip


def joined(place, number):
    """Start a worker in a network of its own, with one link to here, and wait until it works."""
    own = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    place.stack.callback(own.wait)
    place.stack.callback(own.kill)
    here, there = f"10.77.{number}.1", f"10.77.{number}.2"
    inside = ("nsenter", f"--net=/proc/{own.pid}/ns/net")
    time.sleep(0.5)
    ip("ip", "link", "add", f"farm{number}", "type", "veth", "peer", "farm", "netns", str(own.pid))
    ip("ip", "address", "add", f"{here}/30", "dev", f"farm{number}")
    ip("ip", "link", "set", f"farm{number}", "up")
    ip(*inside, "ip", "address", "add", f"{there}/30", "dev", "farm")
    ip(*inside, "ip", "link", "set", "farm", "up")
    ip(*inside, "ip", "link", "set", "lo", "up")
    worker = place.begin("linked", f"tls://{here}:{place.port}", before=inside)
    until(worker, "works for")
    return worker


def told(farm, what, before, after):
    """Submit trials, do something once the first have come back, and print what becomes of it."""
    numbers = {farm.submit(order(build=0.1, run=0.05), 5.0) for _ in range(40)}
    right, gap, since = 0, 0.0, None
    while numbers:
        asked = time.monotonic()
        found = farm.answered(numbers)
        gap = max(gap, time.monotonic() - asked)
        numbers -= found.keys()
        right += sum(answer.measurements[0].median == 1e-3 for answer in found.values())
        if since is None:
            since = before() or time.monotonic()
    after()
    end = time.monotonic() + 60
    while len(farm.own) < 2 and time.monotonic() < end:
        farm.pump(1.0)
    sys.stdout.write(json.dumps([what, right, round(gap, 1), len(farm.own)]) + "\n")
    sys.stdout.flush()


def ip(*command):
    subprocess.run(command, check=True)


if __name__ == "__main__":
    ip("ip", "link", "set", "lo", "up")
    main()
