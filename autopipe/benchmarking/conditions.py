"""What else a machine did while something was timed on it, and whether that disturbed it.

Linux counts in ticks what each processor did, and by the nanosecond what a process did; what is
left is other programs. Only processors count that the process may use: on a large machine, and in
a container that is held to some of them, the others are nobody's business.
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
"""Share of the processors that a contender wants, from which those who take it disturb."""

_GRAIN: Final = 2
"""Ticks by which what is counted for a processor may be off."""

_STAT: Final = Path("/proc/stat")

_STEAL: Final = 7
_BUSY: Final = (0, 1, 2, 5, 6)
"""Places in a line of /proc/stat: user, nice, system, irq, softirq; what guests take is in user."""


class Disturbance(Frozen, frozen=True):
    """Who took the processor from a contender, and how much of it."""

    by: str
    share: float

    def __str__(self) -> str:
        """Write it for people."""
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
    """All that was counted, idle or not: counters that stand still tell nothing."""

    def until(self, after: "Glance", cores: int, limit: float | None = None) -> RoundConditions:
        """Return what happened between two looks."""
        cpu = after.cpu - self.cpu
        others = stolen = None
        if (
            self.busy is not None and after.busy is not None
            and self.stolen is not None and after.stolen is not None
            and after.counted > self.counted
        ):  # fmt: skip
            others = max(0.0, after.busy - self.busy - cpu)
            stolen = max(0.0, after.stolen - self.stolen)
        return RoundConditions(
            seconds=after.at - self.at, cpu=cpu, others=others, stolen=stolen, cores=cores,
            load_before=self.load, load_after=after.load, quota=limit,
        )  # fmt: skip


def read_counters(cpus: Collection[int], stat: Path = _STAT) -> Glance:
    """Look at the counters of this process and of the processors `cpus`."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = time.process_time() + children.ru_utime + children.ru_stime
    at, load = time.perf_counter(), load_average()
    try:
        counted = _parse_cpu_seconds(stat.read_text("ascii"), cpus)
    except (OSError, ValueError):  # some sandboxes show no such file, or another one
        counted = None
    if counted is None:
        return Glance(at, cpu, load)
    return Glance(at, cpu, load, *counted)


def disturbance(during: RoundConditions, wanted: int) -> Disturbance | None:
    """Say who disturbed a contender that wants so many processors; None where nobody did.

    Others that run where it does not disturb nobody, as far as this tells.
    """
    if during.others is None or during.stolen is None or not during.seconds:
        return None
    wanted = max(1, min(wanted, during.cores, ceil(during.quota or during.cores)))
    whole = during.seconds * during.cores
    doubt = _GRAIN / os.sysconf("SC_CLK_TCK") * during.cores
    crowded = during.others - doubt - during.seconds * (during.cores - wanted)
    if crowded > _DISTURBING * during.seconds * wanted:
        return Disturbance(by="other programs", share=min(1.0, during.others / whole))
    asked = during.cpu + during.others + during.stolen
    if during.stolen - doubt > _DISTURBING * asked:
        return Disturbance(by="the host of this machine", share=during.stolen / asked)
    return None


def load_average() -> float:
    """Return the number of runnable processes, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def _parse_cpu_seconds(stat: str, cpus: Collection[int]) -> tuple[float, float, float] | None:
    """Return the seconds that the processors were busy, were kept from us, and in all.

    None if one of them is not there. Raises ValueError for what is no number.
    """
    tick = 1 / os.sysconf("SC_CLK_TCK")
    lines = (line.split() for line in stat.splitlines() if line.startswith("cpu"))
    ticks = {name: [int(number) for number in rest] for name, *rest in lines}
    mine = [ticks.get(f"cpu{cpu}", []) for cpu in cpus]
    if not mine or any(len(ticks_of_core) <= _STEAL for ticks_of_core in mine):
        return None
    busy = sum(ticks_of_core[place] for ticks_of_core in mine for place in _BUSY)
    stolen = sum(ticks_of_core[_STEAL] for ticks_of_core in mine)
    counted = sum(sum(ticks_of_core[: _STEAL + 1]) for ticks_of_core in mine)
    return busy * tick, stolen * tick, counted * tick
