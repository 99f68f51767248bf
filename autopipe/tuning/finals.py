"""The finals: who wins each task is decided inside the built model, round by round.

Say that 20 tasks have up to eight finalists each. The one that an untuned build would have holds
the place. In each round of a first heat the model runs with
all winners of the trials, then with all that came second, and so on; where a task has no third,
with its winner again. Each kernel is timed in each. A few rounds tell who is fastest of those that
challenge who holds the place of a task, and only he goes on: to be the fastest of seven is partly
luck, so what he has shown there does not count. In the second heat the model runs with all holders
and with all challengers. So all tasks are decided at once, each among kernels that are much what
they will be: a challenger wins where the sign test over these rounds says that he is likely to be
faster. Then the model is built with all who won and with all holders, and the two run as packages
do: loaded by a new process in each round, with nobody watching. Who won stays only if his model is
faster as a whole, and that for sure. So tuning does not slow a model down.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import monotonic
from typing import Final, NamedTuple, TypeVar

from autopipe.artifacts.tuning import FinalsReport, FinalTime, Replaced
from autopipe.benchmarking.interval import Interval, paired
from autopipe.measure.in_model import Place
from autopipe.tasks.task import Task
from autopipe.tuning.challenge import SURE, Challenge, Kernels, calls, challenge, fastest, totals
from autopipe.tuning.final_models import Limits, Models, TooLate, Wins
from autopipe.tuning.finalists import Finalists
from autopipe.tuning.journal import Proposal

_FEWEST: Final = 9
"""Rounds from which something is decided: 8 would do for the sign test."""

_MOST: Final = 31
"""Rounds that are made at most."""

_MOST_PROCESSES: Final = 21
"""The same where each is a process of its own."""

_HEAT: Final = 5
"""Rounds of the first heat, which only says who challenges the winners of the trials."""

_FEW: Final = 3
"""Rounds without which the first heat says nothing."""

_HEATS: Final = 0.4
"""Part of the time left that the first heat may take."""

_SURE_OF: Final = 3
"""Ranks that are compiled as long as there is time; others take half of the finals at most."""

_BUILDS: Final = 0.5
"""Part of the time that is left which a build may take."""

_PROCESS: Final = 1.5
"""Seconds of one process that loads two models and runs them, with what disturbs it."""

_KEPT: Final = 0.5
"""Part of the time left after the first build that is kept for the last rounds, at most."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Decided:
    """What the finals came to."""

    winners: Wins
    """Who wins where it is somebody else than in the trials."""
    times: Mapping[str, tuple[float, ...]]
    """Seconds of one call of the winner inside the model, a value a round, by workload."""
    report: FinalsReport
    tasks: Mapping[str, FinalTime]
    """What is told of each task, by workload."""


class _FinalRounds(NamedTuple):
    """What was timed."""

    whole: Sequence[float]
    """Seconds of one run with the first set of schedules, a value a round."""
    kernels: Sequence[Kernels]
    """Of each set of schedules."""


class _FinalKernels(NamedTuple):
    """What stays."""

    kernels: Kernels
    gain: Interval | None
    """What the model takes by what it took before; null where nothing is new."""
    whole: float
    """Seconds of a run."""


class _RacedPackages(NamedTuple):
    """How packages ran."""

    gain: Interval | None
    """What the model takes with who won by what it takes with who held."""
    seconds: Sequence[float]
    """Of a run with each of the two."""


class Finals:
    """Plays the finals."""

    def __init__(
        self, models: Models, tasks: Sequence[Task], entered: Sequence[Finalists], limits: Limits
    ) -> None:
        """Take a model whose functions have the finalists' schedules, in order, and all tasks."""
        self._tasks = tasks
        self._models = models
        self._entered = entered
        self._limits = limits
        self._end = monotonic() + limits.seconds
        self._took = 0.0
        self._kept = 0.0

    def decide(self) -> Decided:
        """Return who wins inside the model. Raises TooLate, and Failed if the model fails."""
        count = self._build()
        held: Mapping[str, int] = {
            one.state.task.workload: one.held if one.held < count else 0 for one in self._entered
        }
        rivals = self._challengers(count, held)
        first = self._play([held, {**held, **rivals}] if rivals else [held], 0.6 if rivals else 1.0)
        found = [
            challenge(entry, held.get(name, 0), rivals.get(name), first.kernels)
            for entry in self._entered
            if (name := entry.state.task.workload)
        ]
        held = self._right(held, {})
        ranks = self._right({one.entry.state.task.workload: one.at for one in found}, held)
        if ranks == held:
            whole = self._alone(held) or median(first.whole)
            kept = _FinalKernels(first.kernels[0], None, whole)
        else:
            kept, stay = self._race(held, ranks, median(first.whole))
            ranks = ranks if stay else held
        return self._decided(found, self._wins(ranks), kept)

    def _wins(self, ranks: Mapping[str, int]) -> Wins:
        """Return who has these ranks, where that is not who won the trials."""
        entered = {one.state.task.workload: one for one in self._entered}
        return {name: entered[name].proposals[rank] for name, rank in ranks.items() if rank}

    def _right(self, ranks: Mapping[str, int], others: Mapping[str, int]) -> Mapping[str, int]:
        """Return the ranks, with other ones, or who won trials, in place of who is not right."""
        wins = self._wins(ranks)
        right = set(self._limits.right(wins)) if wins else set()
        return {
            name: rank if name in right or not rank else others.get(name, 0)
            for name, rank in ranks.items()
        }

    def _challengers(self, count: int, held: Mapping[str, int]) -> Mapping[str, int]:
        """Return the rank of who challenges the holder of each task's place, by workload.

        That is who does best in the first heat, or who did in the trials where there is no time for
        it.
        """
        entered = {one.state.task.workload: one for one in self._entered}
        second = {
            name: 0 if held.get(name) else 1
            for name, one in entered.items()
            if min(len(one.proposals), count) > 1
        }
        if count <= 2:  # noqa: PLR2004 - winners, and who came second
            return second
        everywhere = [dict.fromkeys(entered, rank) for rank in range(count)]
        try:
            heat = self._play(everywhere, _HEATS, _FEW, _HEAT).kernels
        except TooLate:
            return second
        return {name: fastest(entered[name], held.get(name, 0), heat) for name in second}

    def _race(
        self, held: Mapping[str, int], ranks: Mapping[str, int], whole: float
    ) -> tuple["_FinalKernels", bool]:
        """Run with who won and with who held; return what stays, and whether it is who won.

        Raises TooLate where no time is left to tell.
        """
        self._kept = 0.0
        most = _FEWEST if self._builds() else _MOST
        old, new = self._play([held, ranks], _HEATS / 2, _FEW, most).kernels
        try:
            gain, wholes = self._whole(held, ranks)
        except TooLate:
            if len(old) < _FEWEST:
                raise
            gain, wholes = paired(totals(new), totals(old), SURE), (whole, whole)
        stay = gain is not None and gain.high < 1.0
        return _FinalKernels(new if stay else old, gain, wholes[stay]), stay

    def _whole(self, held: Mapping[str, int], ranks: Mapping[str, int]) -> "_RacedPackages":
        """Return what packages with who won and with who held take.

        Raises TooLate where there is no time to build them.
        """
        if not self._builds():
            raise TooLate
        places = [self._place(held), self._place(ranks)]
        for place in places:
            self._models.link(place)
        old, new = self._rounds(self._models.whole, places, 1.0, most=_MOST_PROCESSES)
        return _RacedPackages(paired(new, old, SURE), (median(old), median(new)))

    def _builds(self) -> bool:
        """Tell whether there is time to build the model once more, and to run it then."""
        return (self._end - monotonic()) * _BUILDS >= self._took

    def _alone(self, held: Mapping[str, int]) -> float | None:
        """Return what a package with who held takes; null where there is no time to tell."""
        self._kept = 0.0
        place = self._place(held)
        self._models.link(place)
        try:
            return median(self._rounds(self._models.whole, [place], 1.0, _FEW, _HEAT)[0])
        except TooLate:
            return None

    def _build(self) -> int:
        """Build the model, and its finalists as long as there is time; return how many ranks."""
        begun = monotonic()
        self._models.build(self._place({e.state.task.workload: e.held for e in self._entered}))
        self._took = monotonic() - begun
        wanted = self._took + _FEWEST * _PROCESS
        self._kept = min(wanted, _KEPT * (self._end - monotonic()))
        most = max(len(entry.proposals) for entry in self._entered)
        for rank in range(most if most > 1 else 0):
            now, end = monotonic(), self._end - self._kept
            short = rank >= _SURE_OF and end - now < self._limits.seconds * _BUILDS
            if short or (end - now) * _BUILDS < now - begun:  # as long as the last one took
                if not rank:
                    raise TooLate
                return rank
            begun = now
            self._models.add(rank)
        return most

    def _play(
        self,
        ranks: Sequence[Mapping[str, int]],
        part: float,
        fewest: int = _FEWEST,
        most: int = _MOST,
    ) -> "_FinalRounds":
        """Return the times with each of these ranks by workload, in a part of the time left.

        Raises TooLate where that is too short for the `fewest` rounds.
        """
        wholes: list[float] = []

        def watched(places: Sequence[Place]) -> Sequence[Mapping[str, float]]:
            found = self._models.round(places)
            wholes.append(found.whole)
            return found.kernels

        places = [self._place(one) for one in ranks]
        kernels = self._rounds(watched, places, part, fewest, most)
        return _FinalRounds(wholes[1:], kernels)

    def _rounds(
        self,
        ask: Callable[[Sequence[Place]], Sequence[_Answer]],
        places: Sequence[Place],
        part: float,
        fewest: int = _FEWEST,
        most: int = _MOST,
    ) -> list[tuple[_Answer, ...]]:
        """Return what was answered for each place, a value a round; the first round is not counted.

        Raises TooLate as `_play`.
        """
        asked = monotonic()
        with self._limits.taken():
            begun = monotonic()
            self._end += begun - asked  # while another run was timing
            ask(places)  # storage is made, and threads begin
            each = monotonic() - begun
            count = min(most, int((self._end - self._kept - monotonic()) * part / each))
            if count < fewest:
                raise TooLate
            steps = [1 if at % 2 else -1 for at in range(count)]  # nobody always comes first
            rounds = [ask(places[::step])[::step] for step in steps]
        return list(zip(*rounds, strict=True))

    def _place(self, ranks: Mapping[str, int]) -> Place:
        """Return the ranks by function, of tasks that have so many finalists."""
        return {
            name: rank
            for entry in self._entered
            if 0 < (rank := ranks.get(entry.state.task.workload, 0)) < len(entry.proposals)
            for name in entry.state.task.functions
        }

    def _decided(self, found: Sequence[Challenge], wins: Wins, kept: _FinalKernels) -> Decided:
        every = ((task.workload, calls(task, kept.kernels)) for task in self._tasks)
        times = {name: seconds for name, seconds in every if seconds}
        middle = {name: median(seconds) for name, seconds in times.items()}
        told = {
            name: FinalTime(
                seconds=middle[name], finalists=len(entry.proposals),
                replaced=_replaced(entry.proposals[0]) if name in wins else None,
                ratio=ratio and ratio.told(),
            )
            for entry, _, ratio in found
            if (name := entry.state.task.workload) in middle
        }  # fmt: skip
        kernels = median(totals(kept.kernels))
        report = FinalsReport(
            rounds=len(kept.kernels), sure=SURE, tasks=sum(one.ratio is not None for one in found),
            decided=sum(one.decided for one in found), changed=len(wins),
            kernels=kernels, rest=max(0.0, kept.whole - kernels), whole=kept.whole, times=middle,
            gain=kept.gain and kept.gain.told(),
        )  # fmt: skip
        return Decided(wins, times, report, told)


def _replaced(proposal: Proposal) -> Replaced:
    return Replaced(**proposal.by._asdict(), schedule=proposal.schedule)
