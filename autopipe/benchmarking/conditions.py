"""Other load on the machine during a measurement, and whether it disturbed the measurement.

Linux counts the busy time of each processor in ticks, and that of a process in nanoseconds; the
difference is due to other programs. Only processors in the affinity mask of the process count.
"""

import os
import resource
import time
from collections.abc import Collection
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final

from autopipe.artifacts.benchmark import RoundConditions
from autopipe.config.frozen import Frozen

_DISTURBING: Final = 0.10
"""Share of the processors of a competitor from which other load counts as a disturbance."""

_GRAIN: Final = 2
"""Error of the counter of a processor in ticks."""

_STAT: Final = Path("/proc/stat")

_STEAL: Final = 7
_BUSY: Final = (0, 1, 2, 5, 6)
"""Columns of /proc/stat: user, nice, system, irq, softirq; the time of guests is in user."""


class Disturbance(Frozen, frozen=True):
    """Cause and share of the processor time that a competitor lost."""

    by: str
    share: float

    def __str__(self) -> str:
        """Format it for messages."""
        return f"{self.by} took {self.share:.0%} of the processor"


@dataclass(frozen=True, slots=True)
class Glance:
    """The counters at one time, in seconds."""

    at: float
    cpu: float
    load: float
    busy: float | None = None
    stolen: float | None = None
    counted: float = 0.0
    """Sum of all counters, idle time included: if it does not advance, they are invalid."""

    def until(self, after: "Glance", cores: int, limit: float | None = None) -> RoundConditions:
        """Return the differences of the counters between two glances."""
        cpu = after.cpu - self.cpu
        other_seconds = stolen = None
        if (
            self.busy is not None and after.busy is not None
            and self.stolen is not None and after.stolen is not None
            and after.counted > self.counted
        ):  # fmt: skip
            other_seconds = max(0.0, after.busy - self.busy - cpu)
            stolen = max(0.0, after.stolen - self.stolen)
        return RoundConditions(
            seconds=after.at - self.at, cpu=cpu, others=other_seconds, stolen=stolen, cores=cores,
            load_before=self.load, load_after=after.load, quota=limit,
        )  # fmt: skip


def read_counters(cpus: Collection[int], stat: Path = _STAT) -> Glance:
    """Read the counters of this process and of the processors `cpus`."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = time.process_time() + children.ru_utime + children.ru_stime
    at, load = time.perf_counter(), load_average()
    try:
        cpu_seconds = _parse_cpu_seconds(stat.read_text("ascii"), cpus)
    except (OSError, ValueError):  # some sandboxes show no such file, or another one
        cpu_seconds = None
    if cpu_seconds is None:
        return Glance(at, cpu, load)
    return Glance(at, cpu, load, *cpu_seconds)


def disturbance(during: RoundConditions, processors: int) -> Disturbance | None:
    """Return the disturbance of a competitor on so many processors; None if there was none.

    Load on processors that the competitor leaves idle does not count.
    """
    if during.others is None or during.stolen is None or not during.seconds:
        return None
    processors = max(1, min(processors, during.cores, ceil(during.quota or during.cores)))
    capacity = during.seconds * during.cores
    doubt = _GRAIN / os.sysconf("SC_CLK_TCK") * during.cores
    excess = during.others - doubt - during.seconds * (during.cores - processors)
    if excess > _DISTURBING * during.seconds * processors:
        return Disturbance(by="other programs", share=min(1.0, during.others / capacity))
    demand = during.cpu + during.others + during.stolen
    if during.stolen - doubt > _DISTURBING * demand:
        return Disturbance(by="the host of this machine", share=during.stolen / demand)
    return None


def load_average() -> float:
    """Return the number of runnable processes, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def _parse_cpu_seconds(stat: str, cpus: Collection[int]) -> tuple[float, float, float] | None:
    """Return the busy, stolen and total seconds of the processors.

    None if one of them is missing. Raises ValueError for invalid numbers.
    """
    tick = 1 / os.sysconf("SC_CLK_TCK")
    lines = (line.split() for line in stat.splitlines() if line.startswith("cpu"))
    ticks = {name: [int(number) for number in rest] for name, *rest in lines}
    core_ticks = [ticks.get(f"cpu{cpu}", []) for cpu in cpus]
    if not core_ticks or any(len(ticks_of_core) <= _STEAL for ticks_of_core in core_ticks):
        return None
    busy = sum(ticks_of_core[place] for ticks_of_core in core_ticks for place in _BUSY)
    stolen = sum(ticks_of_core[_STEAL] for ticks_of_core in core_ticks)
    total = sum(sum(ticks_of_core[: _STEAL + 1]) for ticks_of_core in core_ticks)
    return busy * tick, stolen * tick, total * tick
