"""The tuners `grid` and `random`: every setting, in an order that measurements do not change."""

import random
from collections.abc import Collection, Mapping, Sequence


class FixedOrder:
    """Goes through the settings in the given order."""

    def __init__(self, order: Sequence[int]) -> None:
        """Begin with the first of the indices."""
        self._order = order

    @classmethod
    def shuffled(cls, size: int, seed: int) -> "FixedOrder":
        """Shuffle the indices of `size` settings."""
        return cls(random.Random(seed).sample(range(size), size))  # noqa: S311 - no secret

    def choose(self, count: int, seen: Collection[int]) -> list[int]:
        """Return the next settings."""
        return [index for index in self._order if index not in seen][:count]

    def learn(self, seconds: Mapping[int, float]) -> None:
        """Learn nothing."""
