"""Shares of a model's time that were searched, measured and steady: three degrees of "tuned"."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from autopipe.tasks.task import Task  # every command imports this file, and few need a task

WITHOUT_SEARCH: Final = ("static", "default", "serial", "loops", "parallel_loops", "none")
"""Engines that propose one schedule without a search."""

TOO_LITTLE: Final = "too little to gain"
"""Why a task is not searched: its first schedule is close to the bound of the machine."""

_EXACT: Final = 1e-9
"""Tolerance for the rounding of a share to a binary fraction."""


class Proof(NamedTuple):
    """The measurement of the schedule of a task in the build."""

    seconds: float
    """Measured time of one call."""
    searched: bool
    """Whether an engine searched for schedules of the task, or its bound left nothing to gain."""
    steady: bool
    """Whether the repeats of the time agree."""


def is_searched(engines: Iterable[str], stopped: str | None) -> bool:
    """Return whether one of the engines searched a task, or its bound made a search needless.

    A schedule close to the bound cannot be improved, so the task counts as searched.
    """
    return stopped == TOO_LITTLE or not set(engines) <= set(WITHOUT_SEARCH)


class Shares(NamedTuple):
    """Shares of the time of all kept tasks."""

    searched: float
    """In tasks for which `is_searched` holds, with a measured winner."""
    measured: float
    """In tasks that are built with a measured schedule."""
    steady: float
    """In tasks whose measurements agree with each other."""

    def format_line(self) -> str:
        """Format the shares in one line, rounded down."""
        return f"of the time {self.format_parts(0)}"

    def format_parts(self, digits: int = 1) -> str:
        """Format the three shares, rounded down, such as `100% searched, 92% steady`."""
        named = self.named().items()
        return ", ".join(f"{format_percent_floored(part, digits)} {name}" for name, part in named)

    def named(self) -> dict[str, float]:
        """Return them by name."""
        return {"searched": self.searched, "measured": self.measured, "steady": self.steady}


def format_percent_floored(part: float, digits: int = 1) -> str:
    """Format a share in percent, rounded down: 99.96 % is not 100 %."""
    scale = 10**digits
    return f"{math.floor(100 * scale * part + _EXACT) / scale:.{digits}f}%"


def compute_shares(tasks: "Iterable[Task]", proofs: Mapping[str, Proof]) -> Shares:
    """Compute the shares of kept tasks; `proofs` are keyed by workload.

    A task without a proof has its estimated time, scaled to the measured ones, as its weight, so
    that unmeasured tasks count fully.
    """
    kept_tasks = [task for task in tasks if task.dropped is None]
    times = {
        task.index: task.calls * proofs[task.workload].seconds
        for task in kept_tasks
        if task.workload in proofs
    }
    estimated_share = sum(task.share for task in kept_tasks if task.index in times)
    scale = sum(times.values()) / estimated_share if times and estimated_share else 1.0
    weights = {task.index: times.get(task.index, task.share * scale) for task in kept_tasks}
    total = sum(weights.values())

    def part(counts: Callable[[Proof], bool]) -> float:
        part_weights = (
            weights[task.index]
            for task in kept_tasks
            if task.workload in proofs and counts(proofs[task.workload])
        )
        return min(1.0, sum(part_weights) / total) if total else 0.0

    return Shares(
        part(lambda proof: proof.searched), part(lambda _: True), part(lambda proof: proof.steady)
    )
