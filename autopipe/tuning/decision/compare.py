"""Select the fastest schedule of each task by timing it inside the compiled model.

Say that 20 tasks have up to eight finalists each. The incumbent of a task is the schedule of an
untuned build. In each round of a screening phase the model runs with all finalists of rank 0, then
with all of rank 1, and so on, and each kernel is timed in each run. A few rounds pick one
challenger per task. To be the fastest of seven is partly luck, so these times do not count. A
second phase compares all incumbents with all challengers in alternating order. All tasks are timed
at once, each among kernels that are much what they will be. Where a challenger is likely to be
faster and passes its check, the model is linked with all such challengers and with all incumbents,
and both run as packages do: loaded by a new process in each round. Both comparisons are evidence,
of which `autopipe.tuning.winner` decides.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final, NamedTuple

from autopipe.artifacts.tuning import ComparisonReport, ModelTime, Replaced
from autopipe.benchmarking.interval import Interval, estimate_paired_ratio
from autopipe.measure.in_model import InModel, Place
from autopipe.tasks.task import Task
from autopipe.tuning.decision.finalists import Finalists
from autopipe.tuning.decision.model_runs import (
    DECIDING_PART,
    FEWEST,
    SCREENING_ROUNDS,
    Compiled,
    Limits,
    Pace,
    TooLate,
    build_model,
)
from autopipe.tuning.evidence import Proposal, TaskEvidence
from autopipe.tuning.winner import SURE, compare_in_model, is_faster_in_model, pick_in_model

_MAX_ROUNDS: Final = 31
"""Rounds that are made at most."""

_MAX_PROCESS_ROUNDS: Final = 21
"""The same where each is a process of its own."""

_FEW: Final = 3
"""Minimum number of rounds of the screening phase."""

_SCREENING_PART: Final = 0.4
"""Part of the time left that the screening phase may take."""

Kernels = Sequence[Mapping[str, float]]
"""Seconds of all calls of each function in a run, for each round."""

Ranks = Mapping[str, int]
"""Ranks among the finalists of each task, by workload."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of the comparison inside a model."""

    evidence: Mapping[str, Sequence[TaskEvidence]]
    """The times of the schedules of each task, by workload."""
    times: Mapping[str, tuple[float, ...]]
    """Seconds of one call of the winner inside the model, a value a round, by workload."""
    report: ComparisonReport
    tasks: Mapping[str, ModelTime]
    """The reported time of each task, by workload."""


class _WinnerKernels(NamedTuple):
    """The times of the model with the winners."""

    kernels: Kernels
    gain: Interval | None
    """Time of the packages with challengers over that of packages with incumbents; null without a
    challenger."""
    whole: float
    """Seconds of a run."""


class _RacedPackages(NamedTuple):
    """Seconds of a run of two packages in alternating order, a value a round."""

    old: Sequence[float]
    new: Sequence[float]


class FinalistComparison:
    """Compares the finalists of all tasks inside one model."""

    def __init__(
        self, models: InModel, tasks: Sequence[Task], finalists: Sequence[Finalists], limits: Limits
    ) -> None:
        """Initialize from a model with the finalists' schedules in its functions, and all tasks."""
        self._tasks = tasks
        self._models = models
        self._entered = {entry.state.task.workload: entry for entry in finalists}
        self._limits = limits
        self._pace = Pace(limits)
        self._compiled: Compiled = {}
        self._evidence: dict[str, list[TaskEvidence]] = {name: [] for name in self._entered}

    def decide(self) -> Decided:
        """Compare incumbents and challengers. Raises TooLate, and Failed if the model fails."""
        incumbents = self._held
        time_incumbents = partial(self._time_ranks, [incumbents], 1.0, 1, 1)
        finalists = list(self._entered.values())
        self._compiled = build_model(
            self._models, finalists, self._pace, self._place(incumbents), time_incumbents
        )
        challengers = self._pick_challengers()
        first_kernels = self._time_ranks(
            [incumbents, {**incumbents, **challengers}] if challengers else [incumbents],
            DECIDING_PART if challengers else 1.0,
        )
        self._append_rounds(incumbents, first_kernels[0])
        if challengers:
            self._append_rounds(challengers, first_kernels[1])
        likely = self._pick_likely(challengers)
        winner_kernels = (
            self._compare_packages(likely, first_kernels)
            if likely
            else self._time_incumbents(first_kernels[0])
        )
        return self._build_report(challengers, winner_kernels)

    @property
    def _held(self) -> Ranks:
        return {name: entry.held for name, entry in self._entered.items()}

    def _append_rounds(self, ranks: Ranks, kernels: Kernels) -> None:
        for name, rank in ranks.items():
            entry = self._entered[name]
            times = _compute_call_times(entry.state.task, kernels)
            self._evidence[name].append(TaskEvidence(entry.proposals[rank], "in_model", times))

    def _pick_challengers(self) -> Ranks:
        """Return the rank of the challenger of each task: the fastest of the screening phase.

        The first one in the order of the trials, where there is no time for that.
        """
        counts = {name: count for name, count in self._compiled.items() if count}
        second = {name: 0 if self._held[name] else 1 for name in counts}
        most = max(counts.values(), default=0)
        if most <= 2:  # noqa: PLR2004 - incumbents, and one challenger each
            return second
        everywhere = [
            {**self._held, **{name: rank if rank < counts[name] else 0 for name in counts}}
            for rank in range(most)
        ]
        try:
            rounds = self._time_ranks(everywhere, _SCREENING_PART, _FEW, SCREENING_ROUNDS)
        except TooLate:
            return second
        return {name: self._pick_fastest(name, rounds[: counts[name]]) for name in second}

    def _pick_fastest(self, name: str, rounds: Sequence[Kernels]) -> int:
        """Return the rank with the minimum median among the challengers."""
        entry = self._entered[name]
        ranks = [rank for rank in range(len(rounds)) if rank != entry.held]
        return min(
            ranks,
            key=lambda rank: median(_compute_call_times(entry.state.task, rounds[rank]) or (0.0,)),
        )

    def _pick_likely(self, challengers: Ranks) -> Ranks:
        """Return the challengers that are likely to be faster, and pass their check."""
        likely = {
            name: entry.proposals[rank]
            for name, rank in challengers.items()
            if (entry := self._entered[name])
            and is_faster_in_model(self._evidence[name], entry.proposals[rank], entry.incumbent)
        }
        passing_names = set(self._limits.passed(likely)) if likely else set()
        return {name: challengers[name] for name in likely if name in passing_names}

    def _compare_packages(self, likely: Ranks, first: Sequence[Kernels]) -> _WinnerKernels:
        """Run packages with the challengers and with the incumbents in turn.

        Raises TooLate if no time is left to measure.
        """
        incumbents, challengers = self._held, {**self._held, **likely}
        self._pace.kept = 0.0
        kernels: Sequence[Kernels] = (first[0], self._merge_times(first, likely))
        try:
            package_times = self._time_packages(incumbents, challengers)
            wholes = [median(package_times.old), median(package_times.new)]
        except TooLate:
            kernels = self._time_ranks([incumbents, challengers], 1.0)
            package_times = _RacedPackages(*map(_sum_kernel_times, kernels))
            wholes = [self._models.unwatched()] * 2
        for name, rank in likely.items():
            entry = self._entered[name]
            self._evidence[name] += [
                TaskEvidence(entry.incumbent, "package", tuple(package_times.old)),
                TaskEvidence(entry.proposals[rank], "package", tuple(package_times.new)),
            ]
        has_new_winner = any(
            self._choose_winner_rank(name, rank) == rank for name, rank in likely.items()
        )
        gain = estimate_paired_ratio(package_times.new, package_times.old, SURE)
        return _WinnerKernels(kernels[has_new_winner], gain, wholes[has_new_winner])

    def _merge_times(self, first: Sequence[Kernels], likely: Ranks) -> Kernels:
        """Return the times of the likely challengers, and of the incumbents of all other tasks."""
        functions = {name for task in likely for name in self._entered[task].state.task.functions}
        return [
            {**old, **{name: time for name, time in new.items() if name in functions}}
            for old, new in zip(*first, strict=True)
        ]

    def _choose_winner_rank(self, name: str, rank: int) -> int:
        """Return the rank of the winner of a task, which has a challenger of this rank."""
        entry = self._entered[name]
        winner = pick_in_model(self._evidence[name], entry.incumbent, entry.proposals[rank])
        return entry.proposals.index(winner)

    def _time_packages(self, incumbents: Ranks, challengers: Ranks) -> "_RacedPackages":
        """Time both packages, seconds a run. Raises TooLate if no time is left to build them."""
        if not self._pace.builds():
            raise TooLate
        places = [self._place(incumbents), self._place(challengers)]
        for place in places:
            self._models.link(place)
        return _RacedPackages(
            *self._pace.rounds(self._models.whole, places, 1.0, FEWEST, _MAX_PROCESS_ROUNDS)
        )

    def _time_incumbents(self, kernels: Kernels) -> _WinnerKernels:
        """Time a package with all incumbents, if enough time is left; else the model as built.

        The time is only reported. To begin without enough time could end the comparison, and lose
        what it has decided.
        """
        self._pace.kept = 0.0
        place = self._place(self._held)
        if self._pace.builds():
            self._models.link(place)
            with suppress(TooLate):
                (rounds,) = self._pace.rounds(self._models.whole, [place], 1.0, _FEW, _FEW)
                return _WinnerKernels(kernels, None, median(rounds))
        return _WinnerKernels(kernels, None, self._models.unwatched())

    def _time_ranks(
        self, ranks: Sequence[Ranks], part: float, fewest: int = FEWEST, most: int = _MAX_ROUNDS
    ) -> Sequence[Kernels]:
        """Return the times with each of these ranks by workload, in a part of the time left.

        Raises TooLate where that is too short for the `fewest` rounds.
        """
        places = [self._place(one) for one in ranks]
        return self._pace.rounds(self._models.round, places, part, fewest, most)

    def _place(self, ranks: Ranks) -> Place:
        """Map each function to the rank of its task, without ranks that the task lacks."""
        return {
            name: rank
            for workload, entry in self._entered.items()
            if 0 < (rank := ranks.get(workload, 0)) < len(entry.proposals)
            for name in entry.state.task.functions
        }

    def _build_report(self, challengers: Ranks, winner_kernels: _WinnerKernels) -> Decided:
        call_times = (
            (task.workload, _compute_call_times(task, winner_kernels.kernels))
            for task in self._tasks
        )
        times = {name: seconds for name, seconds in call_times if seconds}
        medians = {name: median(seconds) for name, seconds in times.items()}
        ranks = {
            **self._held,
            **{name: self._choose_winner_rank(name, rank) for name, rank in challengers.items()},
        }
        ratios = {name: self._compare_challenger(name, rank) for name, rank in challengers.items()}
        model_times = {
            name: ModelTime(
                seconds=medians[name], finalists=len(entry.proposals),
                replaced=_describe_proposal(entry.proposals[0]) if ranks[name] else None,
                ratio=ratio.as_tuple() if (ratio := ratios.get(name)) else None,
            )
            for name, entry in self._entered.items() if name in medians and self._evidence[name]
        }  # fmt: skip
        kernels = median(_sum_kernel_times(winner_kernels.kernels))
        report = ComparisonReport(
            rounds=len(winner_kernels.kernels), sure=SURE,
            tasks=sum(ratio is not None for ratio in ratios.values()),
            decided=sum(_is_sure(ratio) for ratio in ratios.values()),
            changed=sum(rank > 0 for rank in ranks.values()),
            kernels=kernels, rest=max(0.0, winner_kernels.whole - kernels),
            whole=winner_kernels.whole, times=medians,
            gain=winner_kernels.gain and winner_kernels.gain.as_tuple(),
        )  # fmt: skip
        return Decided(self._evidence, times, report, model_times)

    def _compare_challenger(self, name: str, rank: int) -> Interval | None:
        entry = self._entered[name]
        challenger = entry.proposals[rank]
        return compare_in_model(self._evidence[name], challenger, entry.incumbent, SURE)


def _compute_call_times(task: Task, rounds: Kernels) -> tuple[float, ...]:
    """Return the seconds of one call of a task in each round; () if the model has none of it."""
    totals = [sum(time.get(name, 0.0) for name in task.functions) for time in rounds]
    return tuple(total / task.calls for total in totals) if all(totals) else ()


def _sum_kernel_times(rounds: Kernels) -> list[float]:
    """Return the summed seconds of all kernels in each round."""
    return [sum(time.values()) for time in rounds]


def _is_sure(ratio: Interval | None) -> bool:
    return ratio is not None and not ratio.low <= 1.0 <= ratio.high


def _describe_proposal(proposal: Proposal) -> Replaced:
    return Replaced(**proposal.by._asdict(), schedule=proposal.schedule)
