"""Runs of a model with different schedules of its tasks, and the time that they may take.

The model is built, and finalists are compiled as far as there is time. First come two of each task,
the heaviest task first, of which one is the incumbent; then the third of each, and so on. A task
without two compiled finalists keeps its incumbent, and runs in the model as built.

Example: A takes 60 % of the time and B 40 %, with three finalists each. Compiled are A0, A1, B0,
B1, A2, B2. If the time ends behind B0, A is compared with two, and B is not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import monotonic
from typing import Final, TypeVar

from autopipe.measure.in_model import InModel, Place
from autopipe.measure.turn import TurnTimeout
from autopipe.tuning.decision.finalists import Finalists
from autopipe.tuning.evidence import Proposal

FEWEST: Final = 9
"""Minimum rounds of a decision: 8 would suffice for the sign test."""

_SURE_OF: Final = 3
"""Ranks that are compiled as long as there is time; others take at most half of the comparison."""

_COMPILE_PART: Final = 0.5
"""Part of the in-model comparison that is left when other ranks are compiled no more."""

_PROCESS: Final = 1.5
"""Seconds of one process that loads two models and runs them, with disturbances."""

_KEPT: Final = 0.5
"""Part of the time left after the build that is kept for packages that run in turn, at most."""

_ENOUGH: Final = 0.7
"""Part of the time that they need without which they are not begun."""

SCREENING_ROUNDS: Final = 5
"""Rounds of the screening phase."""

DECIDING_PART: Final = 0.6
"""Part of the time left that incumbents and challengers may take turns in."""

_FIRST_RUNS: Final = 1.0
"""Seconds in which what was compiled is loaded and runs for the first time, with disturbances."""

_BUILDS: Final = 0.5
"""Part of the time that is left which a build may take."""

_Answer = TypeVar("_Answer")

Compiled = Mapping[str, int]
"""How many of its finalists can run in the model, by workload: none, or two and more."""


class TooLate(Exception):  # noqa: N818 - names an event
    """There is no time left for the comparison."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The time limit of a comparison inside a model, and the check of its schedules."""

    seconds: float
    taken: Callable[[], AbstractContextManager[None]]
    """Keeps others from timing on this machine while inside."""
    passed: Callable[[Mapping[str, Proposal]], Iterable[str]]
    """Checks a schedule of each workload; returns the workloads where it passed."""


class Pace:
    """The time of the comparison inside one model."""

    def __init__(self, limits: Limits) -> None:
        """Begin now."""
        self._limits = limits
        self._end = monotonic() + limits.seconds
        self.kept = 0.0
        """Seconds reserved for later phases."""
        self.build = 0.0
        """Seconds that a build of the model takes."""
        self.each = 0.0
        """Seconds that the last rounds took for each place, without the first one."""

    def left(self) -> float:
        """Return the seconds that are left, without the reserved ones."""
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
        """Run rounds in a part of the time left; return the answers by place, one per round.

        The first round is not counted: storage is made, and threads begin. What is kept is for
        the `fewest` rounds, too. Raises TooLate where the time is too short for these.
        """
        rounds: list[Sequence[_Answer]] = []
        needed_seconds = 0.0
        try:
            with self._limits.taken():
                ask(places)
                start = monotonic()
                until, latest = start + self.left() * part, start + (self.left() + self.kept) * part
                while len(rounds) < most:
                    if monotonic() + needed_seconds > (until if len(rounds) >= fewest else latest):
                        break
                    step = -1 if len(rounds) % 2 else 1  # none always comes first
                    rounds.append(ask(places[::step])[::step])
                    round_seconds = (monotonic() - start) / len(rounds)
                    needed_seconds = round_seconds * max(1, fewest - len(rounds))
        except TurnTimeout:
            raise TooLate from None
        if len(rounds) < fewest:
            raise TooLate
        self.each = round_seconds / len(places)
        return list(zip(*rounds, strict=True))


def build_model(
    models: InModel,
    finalists: Sequence[Finalists],
    pace: Pace,
    place: Place,
    run: Callable[[], object],
) -> Compiled:
    """Build the model with the incumbents of a `place`, and compile finalists; return how many.

    `run` runs the model a little and sets the seconds of a round in `pace`. Raises TooLate where no
    task has a challenger.
    """
    start = monotonic()
    models.build(place)
    pace.build = monotonic() - start
    run()
    packages = pace.build + FEWEST * _PROCESS
    reserved_seconds = min(packages, _KEPT * pace.left())
    pace.kept = reserved_seconds if reserved_seconds >= _ENOUGH * packages else 0.0
    shortest = _COMPILE_PART * (pace.left() + pace.kept)
    compiled_counts = {entry.state.task.workload: 0 for entry in finalists}
    longest = 0.0
    for rank, entry in _order_finalists(finalists):
        left = pace.left()
        short = rank >= _SURE_OF and left + pace.kept < shortest
        if short or left - _estimate_rounds(rank + 1, pace.each) < longest:
            break
        start = monotonic()
        models.add(rank, entry.state.task.functions)
        compiled_counts[entry.state.task.workload] = rank + 1
        longest = max(longest, monotonic() - start)
    usable = {name: count if count > 1 else 0 for name, count in compiled_counts.items()}
    if any(len(entry.proposals) > 1 for entry in finalists) and not any(usable.values()):
        raise TooLate
    return usable


def _estimate_rounds(ranks: int, run: float) -> float:
    """Estimate the seconds of all rounds with `ranks` finalists, if a run takes `run` seconds.

    Of each phase one more round is made than counts. The last one takes what the decision leaves.
    Example: runs of 70 ms, and 8 finalists. Screening runs the model 48 times in 3.4 s. Incumbents
    and challengers run 20 times in 1.4 s, and once more so often if no package can be built. That
    has to be two fifths of what is left then, 3.5 s.
    """
    screening = (SCREENING_ROUNDS + 1) * ranks if ranks > 2 else 0  # noqa: PLR2004 - one challenger
    deciding = 2 * (FEWEST + 1) / (1 - DECIDING_PART)
    return _FIRST_RUNS + (screening + deciding) * run


def _order_finalists(finalists: Sequence[Finalists]) -> Iterator[tuple[int, Finalists]]:
    """Yield ranks and tasks in the order in which they are compiled."""
    contested_finalists = [entry for entry in finalists if len(entry.proposals) > 1]
    contested_finalists.sort(key=lambda entry: -entry.state.task.calls * entry.state.best)
    most = max((len(entry.proposals) for entry in contested_finalists), default=0)
    yield from ((rank, entry) for entry in contested_finalists for rank in (0, 1))
    for rank in range(2, most):
        yield from ((rank, entry) for entry in contested_finalists if len(entry.proposals) > rank)
