"""The tuner `grid`: tries every setting, in the order of the template."""

from collections.abc import Collection, Mapping

from autopipe.schedules.engines.knobs.space import Space


class Grid:
    """Goes through the settings in order."""

    def __init__(self, space: Space) -> None:
        """Begin a search of a space."""
        self._size = len(space.settings)

    def choose(self, count: int, seen: Collection[int]) -> list[int]:
        """Return the next settings."""
        return [index for index in range(self._size) if index not in seen][:count]

    def learn(self, seconds: Mapping[int, float]) -> None:
        """Learn nothing."""
