"""Candidates, and the results of their trials."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm

Candidate = Callable[[], "tvm.IRModule"]
"""Creates the scheduled module; called in the child that builds it, which contains a crash."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The memory accesses of a model between two calls of a kernel, which determine its caches."""

    touched: int = 0
    """Bytes that the model reads and writes elsewhere."""
    activations: tuple[int, ...] = ()
    """Positions of the kernel's arguments that the model writes before the call."""
    weights: tuple[int, ...] = ()
    """Positions of the kernel's arguments that are constant."""


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A candidate that can be measured repeatedly: equal ones create the same module."""

    task: str
    """Name of its task."""
    implementation: str
    schedule: str
    make: Candidate = field(compare=False)
    surroundings: Surroundings | None = field(compare=False, default=None)
    """The state of the caches when a model calls it; None to time it in a loop."""
    workload: "tvm.IRModule | None" = field(compare=False, default=None)
    """The workload of the schedule, so that another machine can build it; None if local only."""

    def __call__(self) -> "tvm.IRModule":
        """Create the scheduled module."""
        return self.make()


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one trial: times, or an error."""

    seconds: tuple[float, ...] = ()
    """Time of one call, a value for each repeat; empty if the trial failed."""
    error: str | None = None
    """The reason of a failed trial, or None."""
    cut: bool = False
    """Whether a single slow run ended the trial early; its time is coarse."""
    by: str | None = field(default=None, compare=False)
    """The worker of a farm that measured it; None for this machine."""

    @property
    def median(self) -> float:
        """Seconds of one call; infinite for a trial that failed."""
        return median(self.seconds) if self.seconds else math.inf


def to_measurement(seconds: tuple[float, ...], *, cut: bool) -> Measurement:
    """Build a measurement; a failed one for impossible times."""
    for value in seconds:
        if not (math.isfinite(value) and value > 0):
            return Measurement(error=f"the timer returned {value!r} seconds")
    if not seconds:
        return Measurement(error="the timer returned no times")
    return Measurement(seconds, cut=cut)
