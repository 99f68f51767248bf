"""How the finals spend their time: what is left, what is kept for later, and rounds that fit in."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, TypeVar

from autopipe.measure.in_model import Place
from autopipe.measure.turn import TurnTimeout
from autopipe.tuning.final_models import Limits, TooLate

_BUILDS: Final = 0.5
"""Part of the time that is left which a build may take."""

_Answer = TypeVar("_Answer")


class Pace:
    """The time of one model's finals."""

    def __init__(self, limits: Limits) -> None:
        """Begin now."""
        self._limits = limits
        self._end = monotonic() + limits.seconds
        self.kept = 0.0
        """Seconds that are kept for what comes later."""
        self.build = 0.0
        """Seconds that a build of the model takes."""
        self.each = 0.0
        """Seconds that the last rounds took for each place, without the first one."""

    def left(self) -> float:
        """Return the seconds that are left, without what is kept."""
        return self._end - self.kept - monotonic()

    def builds(self) -> bool:
        """Tell whether there is time to build the model once more, and to run it then."""
        return (self._end - monotonic()) * _BUILDS >= self.build

    def rounds(
        self,
        ask: Callable[[Sequence[Place]], Sequence[_Answer]],
        places: Sequence[Place],
        part: float,
        fewest: int,
        most: int,
    ) -> list[tuple[_Answer, ...]]:
        """Return what was answered for each place, a value a round, in a part of the time left.

        The first round is not counted: storage is made, and threads begin. What is kept is for
        the `fewest` rounds, too. Raises TooLate where the time is too short for these.
        """
        try:
            return self._rounds(ask, places, part, fewest, most)
        except TurnTimeout:
            raise TooLate from None

    def _rounds(
        self,
        ask: Callable[[Sequence[Place]], Sequence[_Answer]],
        places: Sequence[Place],
        part: float,
        fewest: int,
        most: int,
    ) -> list[tuple[_Answer, ...]]:
        with self._limits.taken():
            ask(places)
            begun = monotonic()
            until, latest = begun + self.left() * part, begun + (self.left() + self.kept) * part
            rounds: list[Sequence[_Answer]] = []
            needed = 0.0
            while len(rounds) < most:
                if monotonic() + needed > (until if len(rounds) >= fewest else latest):
                    break
                step = -1 if len(rounds) % 2 else 1  # nobody always comes first
                rounds.append(ask(places[::step])[::step])
                each = (monotonic() - begun) / len(rounds)
                needed = each * max(1, fewest - len(rounds))
        if len(rounds) < fewest:
            raise TooLate
        self.each = each / len(places)
        return list(zip(*rounds, strict=True))
