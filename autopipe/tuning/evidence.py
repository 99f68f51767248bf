"""Evidence about the schedules of one task: their measurements and checks.

Every step of tuning appends to a list of it, and nothing is ever taken back.
`autopipe.tuning.winner.pick_winner` decides by the list alone.
"""

import math
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

from autopipe.records.record import Record, is_steady
from autopipe.schedules.policy import Contender

Place = Literal["trial", "repeat", "in_model", "package", "check"]
"""Where evidence was found: `trial`, alone; `repeat`, in turn with a few schedules of its task;
`in_model`, in turn with others inside the compiled model; `package`, as part of whole packages that
ran in turn; `check`, without a time."""


class Proposal(NamedTuple):
    """A schedule, and the arm that proposed it."""

    by: Contender
    schedule: str
    """As `replay` reads it."""

    @classmethod
    def of(cls, record: Record) -> "Proposal":
        """Return the schedule that a record is a trial of."""
        return cls(Contender(record.engine, record.implementation), record.schedule)

    @property
    def body(self) -> tuple[str, str]:
        """Implementation and schedule: equal where two engines propose the same.

        The same knobs of a template mean something else for another implementation.
        """
        return self.by.implementation, self.schedule


@dataclass(frozen=True, slots=True)
class TaskEvidence:
    """One fact about one schedule of a task."""

    proposal: Proposal
    place: Place
    times: tuple[float, ...] = ()
    """Seconds of one call, a value for each repetition or round, and of `package` of a whole run;
    empty if the trial failed, and of a check."""
    check: Literal["passed", "failed", "excluded"] | None = None
    """`failed`: it computes something else, crashes, or cannot be made again. `excluded`: it is
    right, and may not win this model. `passed`, also if the check could not be made: the build is
    verified as a whole."""
    by: str = ""
    """Which session has measured it, or the reason of a verdict."""
    series: int = 0
    """Which comparison the times are of: those of one series were taken in turn, round by round."""
    coarse: bool = False
    """Whether a single slow run ended the trial early."""
    row: int | None = None
    """The row of the store that it was read from."""

    @property
    def median(self) -> float:
        """Seconds of one call; infinite where there is no time."""
        return median(self.times) if self.times else math.inf

    @property
    def is_unsteady(self) -> bool:
        """Whether the spread of its times shows that another load ran at the same time."""
        return bool(self.times) and not is_steady(self.times)
