"""What a tuner is: the order in which the settings of a template are tried."""

from collections.abc import Collection, Mapping
from typing import Protocol


class Tuner(Protocol):
    """Chooses settings of one space."""

    def choose(self, count: int, seen: Collection[int]) -> list[int]:
        """Return `count` settings that were not seen, or as many as there are."""

    def learn(self, measured: Mapping[int, float]) -> None:
        """Take the seconds that settings took; infinite for those that failed."""
