"""What the finals need: a model that runs with different schedules, and what that may take."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from autopipe.measure.in_model import Place
from autopipe.tuning.evidence import Proposal


class TooLate(Exception):  # noqa: N818 - says what happened
    """There is no time left for the finals."""


class Models(Protocol):
    """A model that runs with different schedules."""

    def build(self, place: Place) -> None:
        """Build the model that is watched, with one set of schedules."""

    def add(self, rank: int, functions: Sequence[str]) -> None:
        """Compile a finalist of these functions, which are equal."""

    def round(self, places: Sequence[Place]) -> Sequence[Mapping[str, float]]:
        """Run the model with one set of schedules after the other.

        Returns for each of them the seconds of all calls of each function in one run.
        """

    def unwatched(self) -> float:
        """Return the seconds of a run of the model that was built, when nobody looks into it."""

    def link(self, place: Place) -> None:
        """Build the library of the model with one set of schedules."""

    def whole(self, places: Sequence[Place]) -> Sequence[float]:
        """Return the seconds of a run as a package with each of these sets runs it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the finals may take, and whom they ask."""

    seconds: float
    taken: Callable[[], AbstractContextManager[None]]
    """Keeps others from timing on this machine while inside."""
    passed: Callable[[Mapping[str, Proposal]], Iterable[str]]
    """Checks a schedule of each workload; returns the workloads where it passed."""
