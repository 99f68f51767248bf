"""A bench whose times follow from the schedules: a digest of each, and nothing is compiled.

So two tunings that ask for the same schedules get the same times, whatever becomes of workers.
`$AUTOPIPE_TEST_SECONDS` is how long a trial takes. `$AUTOPIPE_TEST_LOG` names a file that gets a
line for each trial that is begun.
"""

import os
import time
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

from autopipe.farm import bench
from autopipe.farm.bench import Bench, main
from autopipe.measure.measurement import Measurement

TRUE_FACTS = bench.here


class Fixed:
    """Times candidates by what they are."""

    def each(self, candidates, bests):
        for candidate in candidates:
            log(candidate)
            time.sleep(float(os.environ.get("AUTOPIPE_TEST_SECONDS", "0.05")))
            yield Measurement((seconds(candidate),) * 3)

    def rounds(self, candidates, count):
        return [Measurement((seconds(candidate),) * count) for candidate in candidates]

    def close(self):
        pass


def log(candidate):
    """Note that a trial is begun."""
    if path := os.environ.get("AUTOPIPE_TEST_LOG"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(sha256(f"{candidate.task} {candidate.schedule}".encode()).hexdigest() + "\n")


def seconds(candidate):
    """Return a time of 1 to 2 ms."""
    number = sha256(f"{candidate.task} {candidate.schedule}".encode()).digest()[:4]
    return 1e-3 * (1 + int.from_bytes(number) / 2**32)


def facts(stack):
    """Return what this machine says of itself: the one that searches is no such one."""
    found = TRUE_FACTS(stack)
    return {**found, "device": {**found["device"], "cpu": "a fixed one"}}


def _measurer(self, order):
    from autopipe.schedules.conditions import Conditions

    conditions = Conditions.of(order.target, fast_algorithms=order.fast_algorithms)
    return Fixed(), conditions


if __name__ == "__main__":
    with patch.object(Bench, "_measurer", _measurer), patch.object(bench, "here", facts):
        main()
