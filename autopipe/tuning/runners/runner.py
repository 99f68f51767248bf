"""The interface of a runner, and the parameters it is opened with."""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autopipe.config.tuning import Measure, Reach
from autopipe.environment.facet import Facts
from autopipe.environment.toolchain import Linker
from autopipe.measure.measurement import Measurement, Repeatable
from autopipe.measure.turn import Turn
from autopipe.pipeline.events import Emit
from autopipe.safety.inspection import PieceChecker
from autopipe.schedules.conditions import Conditions


class Measurer(Protocol):
    """Builds and times candidates somewhere."""

    def measure(
        self,
        candidates: Sequence[Repeatable],
        best: float = math.inf,
        *,
        same_task: bool = True,
        until: float = math.inf,
    ) -> Generator[tuple[int, Measurement]]:
        """Yield the place of each candidate and its measurement, as soon as it is measured.

        `best` is the time to beat, in seconds. With `same_task` all candidates are of one task: the
        time of each is the one to beat for the next. Candidates not built by `until`, on the
        monotonic clock, are omitted. Closing the generator cancels the remaining measurements.
        """

    @property
    def width(self) -> int:
        """How many candidates are measured at a time: 1 on this machine.

        A runner with more begins when `measure` is called, not when its first answer is wanted. It
        may have an attribute `tell`: what that is when `measure` is called gets place and
        measurement as soon as they come, before anybody asks for them.
        """


class Rounds(Protocol):
    """Times a few candidates in turn, so that disturbances affect all of them alike."""

    def rounds(self, candidates: Sequence[Repeatable], count: int) -> list[Measurement]:
        """Return the measurement of each candidate, with a time for each round.

        All rounds run on one device.
        """


class Runner(Measurer, Rounds, Protocol):
    """Measures the trials of a run."""

    @property
    def device(self) -> Mapping[str, object]:
        """The machine that times are valid for, as `Facet.DEVICE` describes it; part of records."""

    @property
    def checker(self) -> PieceChecker | None:
        """Checks schedules against plain loops, where this machine cannot run them.

        None where it can: then they are checked here.
        """

    def close(self) -> None:
        """End all that it has started."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Parameters of a runner."""

    conditions: Conditions
    """The conditions that schedules are made for."""
    facts: Facts
    """The facts of this machine by facet of stage *tune*; `Facet.TARGET` is the target as data."""
    measure: Measure
    """How a candidate is built and timed."""
    reach: Reach
    """Where the machines are that do so."""
    turn: Turn
    """Keeps other runs from timing on this machine meanwhile."""
    touched: int
    """Bytes that the model touches between two calls of a kernel; 0 to time in a loop."""
    emit: Emit
    """Tells the reporter."""
    linker: Linker | None = None
    """Links kernels for another kind of machine; null for the linker of this one."""
