"""The tuner `random`: tries every setting, in an order that depends on the seed."""

import random
from collections.abc import Collection, Mapping

from autopipe.schedules.engines.knobs.space import Space


class RandomOrder:
    """Goes through the settings in a random order."""

    def __init__(self, space: Space, seed: int) -> None:
        """Shuffle the settings."""
        size = len(space.settings)
        self._order = random.Random(seed).sample(range(size), size)  # noqa: S311 - no secret

    def choose(self, count: int, seen: Collection[int]) -> list[int]:
        """Return the next settings."""
        return [index for index in self._order if index not in seen][:count]

    def learn(self, seconds: Mapping[int, float]) -> None:
        """Learn nothing."""
