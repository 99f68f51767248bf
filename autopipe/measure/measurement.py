"""What is known of a candidate after its trial."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm

Candidate = Callable[[], "tvm.IRModule"]
"""Makes the scheduled module; called in the child that builds it, so it may crash there."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a model does between two calls of a kernel, as far as caches show it."""

    touched: int = 0
    """Bytes that it reads and writes elsewhere."""
    activations: tuple[int, ...] = ()
    """Arguments of the kernel that it writes anew, by position."""
    weights: tuple[int, ...] = ()
    """Arguments that it never writes."""


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A candidate that may be asked for again: two that are equal make the same module."""

    task: str
    """Name of the task whose time it is about."""
    implementation: str
    schedule: str
    make: Candidate = field(compare=False)
    surroundings: Surroundings | None = field(compare=False, default=None)
    """How a model calls it; null where it is timed in a loop of its own."""
    workload: "tvm.IRModule | None" = field(compare=False, default=None)
    """What the schedule is for, so that another machine can make it; null for what is made here."""

    def __call__(self) -> "tvm.IRModule":
        """Make the scheduled module."""
        return self.make()


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one trial: times, or why there are none."""

    seconds: tuple[float, ...] = ()
    """Time of one call, a value for each repeat; empty if the trial failed."""
    error: str | None = None
    """Why the trial failed; null if it did not."""
    cut: bool = False
    """Whether a single slow run ended the trial early; its time is coarse."""
    by: str | None = field(default=None, compare=False)
    """Which worker of a farm says so; null for this machine."""

    @property
    def median(self) -> float:
        """Seconds of one call; infinite for a trial that failed."""
        return median(self.seconds) if self.seconds else math.inf


def to_measurement(seconds: tuple[float, ...], *, cut: bool) -> Measurement:
    """Return a measurement, a failed one if a time can not be true."""
    for value in seconds:
        if not (math.isfinite(value) and value > 0):
            return Measurement(error=f"the timer said {value!r} seconds")
    if not seconds:
        return Measurement(error="the timer said nothing")
    return Measurement(seconds, cut=cut)
