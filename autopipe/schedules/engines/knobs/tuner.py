"""The interface of a tuner. A tuner decides in which order settings of a template are tried."""

from collections.abc import Collection, Mapping
from typing import Protocol


class Tuner(Protocol):
    """Chooses settings of one space."""

    def choose(self, count: int, seen: Collection[int]) -> list[int]:
        """Return `count` settings that were not chosen before, or all that are left."""

    def learn(self, measured: Mapping[int, float]) -> None:
        """Take the measured seconds of settings; infinite for a setting that failed."""
