"""The finals: who wins each task is decided inside the built model, round by round.

Say that 20 tasks have up to eight finalists each. The one that an untuned build would have holds
the place. In each round of a first heat the model runs with all winners of the trials, then with
all that came second, and so on; where a task has no third, with its winner again. Each kernel is
timed in each. A few rounds tell who is fastest of those that challenge who holds the place of a
task, and only he goes on: to be the fastest of seven is partly luck, so what he has shown there
does not count. In the second heat the model runs with all holders and with all challengers. So all
tasks are decided at once, each among kernels that are much what they will be: a challenger wins
where the sign test over these rounds says that he is likely to be faster. Then the model is built
with all who won and with all holders, and the two run as packages do: loaded by a new process in
each round, with nobody watching. Who won stays only if his model is faster as a whole, and that for
sure. So tuning does not slow a model down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from statistics import median
from typing import Final, NamedTuple

from autopipe.artifacts.tuning import FinalsReport, FinalTime, Replaced
from autopipe.benchmarking.interval import Interval, paired
from autopipe.measure.in_model import Place
from autopipe.tasks.task import Task
from autopipe.tuning.challenge import SURE, Challenge, Kernels, calls, challenge, fastest, totals
from autopipe.tuning.final_build import FEWEST, Compiled, build
from autopipe.tuning.final_models import Limits, Models, TooLate, Wins
from autopipe.tuning.finalists import Finalists
from autopipe.tuning.journal import Proposal
from autopipe.tuning.pace import Pace

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
    played: bool = True
    """Whether there was time for anybody but who won the trials."""


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
        self._pace = Pace(limits)
        self._compiled: Compiled = {}

    def decide(self) -> Decided:
        """Return who wins inside the model. Raises TooLate, and Failed if the model fails."""
        held: Mapping[str, int] = {one.state.task.workload: one.held for one in self._entered}
        place = self._place(held)
        tried = partial(self._play, [held], 1.0, 1, 1)
        self._compiled = build(self._models, self._entered, self._pace, place, tried)
        rivals = self._challengers(held)
        first = self._play([held, {**held, **rivals}] if rivals else [held], 0.6 if rivals else 1.0)
        found = [
            challenge(entry, held.get(name, 0), rivals.get(name), first)
            for entry in self._entered
            if (name := entry.state.task.workload)
        ]
        held = self._right(held, {})
        ranks = self._right({one.entry.state.task.workload: one.at for one in found}, held)
        if ranks == held:
            whole = self._alone(held) or self._models.unwatched()
            kept = _FinalKernels(first[0], None, whole)
        else:
            kept, stay = self._race(held, ranks)
            ranks = ranks if stay else held
        return self._decided(found, self._wins(ranks), kept)

    def tell(self) -> Decided:
        """Return what the model takes with who holds each place, where time is too short for more.

        That takes another build, if others held the places of the last one. Raises Failed.
        """
        held = {one.state.task.workload: one.held for one in self._entered}
        self._models.build(self._place(held))
        self._pace = Pace(replace(self._limits, seconds=inf))
        (kernels,) = self._play([held], 1.0, _FEW, _FEW)
        self._models.link(self._place(held))
        (whole,) = self._models.whole([self._place(held)])
        found = self._decided([], {}, _FinalKernels(kernels, None, whole))
        return replace(found, played=False)

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

    def _challengers(self, held: Mapping[str, int]) -> Mapping[str, int]:
        """Return the rank of who challenges the holder of each task's place, by workload.

        That is who does best in the first heat, or who did in the trials where there is no time for
        it.
        """
        entered = {one.state.task.workload: one for one in self._entered}
        counts = {name: count for name, count in self._compiled.items() if count}
        second = {name: 0 if held.get(name) else 1 for name in counts}
        most = max(counts.values(), default=0)
        if most <= 2:  # noqa: PLR2004 - winners, and who came second
            return second
        everywhere = [
            {**held, **{name: rank if rank < counts[name] else 0 for name in counts}}
            for rank in range(most)
        ]
        try:
            heat = self._play(everywhere, _HEATS, _FEW, _HEAT)
        except TooLate:
            return second
        return {
            name: fastest(entered[name], held.get(name, 0), heat[: counts[name]]) for name in second
        }

    def _race(
        self, held: Mapping[str, int], ranks: Mapping[str, int]
    ) -> tuple["_FinalKernels", bool]:
        """Run with who won and with who held; return what stays, and whether it is who won.

        Raises TooLate where no time is left to tell.
        """
        self._pace.kept = 0.0
        part, most = (_HEATS / 2, FEWEST) if self._pace.builds() else (1.0, _MOST)
        old, new = self._play([held, ranks], part, _FEW, most)
        try:
            gain, wholes = self._whole(held, ranks)
        except TooLate:
            if len(old) < FEWEST:
                raise
            gain = paired(totals(new), totals(old), SURE)
            wholes = (self._models.unwatched(),) * 2
        stay = gain is not None and gain.high < 1.0
        return _FinalKernels(new if stay else old, gain, wholes[stay]), stay

    def _whole(self, held: Mapping[str, int], ranks: Mapping[str, int]) -> "_RacedPackages":
        """Return what packages with who won and with who held take.

        Raises TooLate where there is no time to build them.
        """
        if not self._pace.builds():
            raise TooLate
        places = [self._place(held), self._place(ranks)]
        for place in places:
            self._models.link(place)
        old, new = self._pace.rounds(self._models.whole, places, 1.0, FEWEST, _MOST_PROCESSES)
        return _RacedPackages(paired(new, old, SURE), (median(old), median(new)))

    def _alone(self, held: Mapping[str, int]) -> float | None:
        """Return what a package with who held takes; null where there is no time to tell."""
        self._pace.kept = 0.0
        place = self._place(held)
        self._models.link(place)
        try:
            return median(self._pace.rounds(self._models.whole, [place], 1.0, _FEW, _FEW)[0])
        except TooLate:
            return None

    def _play(
        self,
        ranks: Sequence[Mapping[str, int]],
        part: float,
        fewest: int = FEWEST,
        most: int = _MOST,
    ) -> Sequence[Kernels]:
        """Return the times with each of these ranks by workload, in a part of the time left.

        Raises TooLate where that is too short for the `fewest` rounds.
        """
        places = [self._place(one) for one in ranks]
        return self._pace.rounds(self._models.round, places, part, fewest, most)

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
