"""The interface of a tuner. A tuner decides in which order settings of a template are tried."""

from collections.abc import Collection, Mapping
from typing import Protocol


class Tuner(Protocol):
    """Chooses settings of one space."""

    def choose(self, count: int, seen: Collection[int]) -> list[int]:
        """Choose `count` settings that are not in `seen`, or all that are left."""

    def learn(self, seconds: Mapping[int, float]) -> None:
        """Learn the measured seconds of settings; infinite for a setting that failed."""
