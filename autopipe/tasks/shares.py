"""How much of a model's time was searched, measured and steady: the three words for "tuned"."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from autopipe.tasks.task import Task  # every command imports this file, and few need a task

WITHOUT_SEARCH: Final = ("static", "default", "serial", "loops", "parallel_loops", "none")
"""Engines that propose one schedule and search for none."""

TOO_LITTLE: Final = "too little to gain"
"""Why a task is not searched whose first schedule comes so near the bound of the machine."""

_EXACT: Final = 1e-9
"""What a percentage may lack for its share being a binary fraction."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of the schedule that a task is built with."""

    seconds: float
    """Measured time of one call."""
    searched: bool
    """Whether an engine searched for schedules of the task, or its bound left nothing to find."""
    steady: bool
    """Whether the repeats of the time agree."""


def is_searched(engines: Iterable[str], stopped: str | None) -> bool:
    """Tell whether a task was searched by one of the engines, or was stopped by its bound before.

    A search of what is that near its bound would find nothing, so that it is not missing.
    """
    return stopped == TOO_LITTLE or not set(engines) <= set(WITHOUT_SEARCH)


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of the time of all kept tasks."""

    searched: float
    """In tasks that `is_searched` holds for, and whose winner was measured."""
    measured: float
    """In tasks that are built with a schedule that was measured."""
    steady: float
    """In tasks whose measurements agree with each other."""

    def told(self) -> str:
        """Say it in one line; almost all is not all."""
        parts = (f"{format_percent_floored(part, 0)} {name}" for name, part in self.named().items())
        return f"of the time {', '.join(parts)}"

    def named(self) -> dict[str, float]:
        """Return them by name."""
        return {"searched": self.searched, "measured": self.measured, "steady": self.steady}


def format_percent_floored(part: float, digits: int = 1) -> str:
    """Write a share in percent, never rounded up: almost all is not all."""
    scale = 10**digits
    return f"{math.floor(100 * scale * part + _EXACT) / scale:.{digits}f}%"


def compute_shares(tasks: "Iterable[Task]", proofs: Mapping[str, Proof]) -> Shares:
    """Return the shares of kept tasks; `proofs` go by workload.

    A task without a proof weighs what is estimated of it, on the scale of the others: what nobody
    has measured cannot make itself small.
    """
    kept = [task for task in tasks if task.dropped is None]
    times = {
        task.index: task.calls * proofs[task.workload].seconds
        for task in kept
        if task.workload in proofs
    }
    estimated = sum(task.share for task in kept if task.index in times)
    scale = sum(times.values()) / estimated if times and estimated else 1.0
    weights = {task.index: times.get(task.index, task.share * scale) for task in kept}
    total = sum(weights.values())

    def part(counts: Callable[[Proof], bool]) -> float:
        found = (
            weights[task.index]
            for task in kept
            if task.workload in proofs and counts(proofs[task.workload])
        )
        return min(1.0, sum(found) / total) if total else 0.0

    return Shares(
        part(lambda proof: proof.searched), part(lambda _: True), part(lambda proof: proof.steady)
    )
