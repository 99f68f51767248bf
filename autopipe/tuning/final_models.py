"""What the finals need: a model that runs with different schedules, and what that may take."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from autopipe.measure.in_model import ModelRound, Place
from autopipe.tuning.journal import Proposal

Wins = Mapping[str, Proposal]
"""New winners by workload."""


class TooLate(Exception):  # noqa: N818 - says what happened
    """There is no time left for the finals."""


class Models(Protocol):
    """A model that runs with different schedules."""

    def build(self, place: Place) -> None:
        """Build the model that is watched, with one set of schedules."""

    def add(self, rank: int) -> None:
        """Compile the schedules of a rank, of all functions that have several."""

    def round(self, places: Sequence[Place]) -> ModelRound:
        """Run the model with one set of schedules after the other."""

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
    right: Callable[[Wins], Iterable[str]]
    """Rerounds the workloads whose new winner was found to be right, or could not be checked."""
