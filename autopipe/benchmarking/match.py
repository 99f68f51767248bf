"""Time the competitors in alternating order, one at a time."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autopipe.artifacts.benchmark import (
    BenchmarkMachine,
    BenchmarkResult,
    Round,
    TimedContender,
    find_best_competitor,
)
from autopipe.benchmarking.agreement import find_disagreement
from autopipe.benchmarking.competitors import COMPETITORS
from autopipe.benchmarking.conditions import Disturbance, disturbance, load_average
from autopipe.benchmarking.contender import Timed, find_outputs_path, time_contender
from autopipe.benchmarking.latency import compare_latencies, summarize_rounds
from autopipe.compiler.step_counter import ReportDone, count_steps
from autopipe.compiler.target import cpu
from autopipe.config.benchmark import Benchmark
from autopipe.errors import StageError

OURS = "autopipe"


@dataclass(frozen=True, slots=True)
class BenchmarkSetup:
    """Competitors, inputs and repetitions of a benchmark."""

    contenders: Mapping[str, Path]
    """The build under `autopipe`, and the model of each reference runtime, by its name."""
    inputs: Path
    """The inputs of every run, as safetensors."""
    options: Benchmark
    """Rounds, repetitions and time limit."""
    gpu: str | None = None
    """Name of the GPU that the build runs on."""


@dataclass(frozen=True, slots=True)
class _TimedRound:
    """A round: the times of each competitor, and the largest disturbance of one of them."""

    timed: Mapping[str, Timed]
    worst: Disturbance | None

    @property
    def as_round(self) -> Round:
        conditions = {name: timed.conditions for name, timed in self.timed.items()}
        return Round(conditions=conditions, disturbed=str(self.worst or ""))


def time_contenders(setup: BenchmarkSetup, threads: int) -> BenchmarkResult:
    """Time all competitors in all rounds; disturbed rounds are dropped if they are a minority.

    Raises StageError if the build fails; a reference runtime that fails is recorded as skipped.
    """
    load_before = load_average()
    rounds, skipped = _time_rounds(setup, threads)
    quiet = [one for one in rounds if one.worst is None]
    enough = 2 * len(quiet) > len(rounds)
    results = _summarize_contenders(quiet if enough else rounds, skipped)
    ours = results.pop(OURS)
    return BenchmarkResult(
        machine=describe_machine(load_before, setup.gpu),
        threads=threads,
        warmup=setup.options.warmup,
        repeat=setup.options.repeat,
        ours=ours,
        competitors=tuple(results.values()),
        comparisons={
            name: compare_latencies(ours.latency, competitor.latency, disturbed=not enough)
            for name, competitor in results.items()
        },
        skipped=skipped,
        rounds=tuple(one.as_round for one in rounds),
        disturbed="" if enough else _describe_disturbance(rounds),
        best=find_best_competitor({name: one.latency for name, one in results.items()}),
    )


def _time_rounds(setup: BenchmarkSetup, threads: int) -> tuple[list[_TimedRound], dict[str, str]]:
    """Time all rounds; return them, and the reasons of skipped runtimes."""
    competitors = {name: path for name, path in setup.contenders.items() if name != OURS}
    obstacles = {name: _find_obstacle(name, path) for name, path in competitors.items()}
    skipped = {name: reason for name, reason in obstacles.items() if reason}
    rounds: list[_TimedRound] = []
    order = list(setup.contenders)
    runs = len(order) - len(skipped)
    report = count_steps("runs timed", setup.options.rounds * runs)
    for place in range(setup.options.rounds):
        timer = _RoundTimer(setup, threads, report, place * runs)
        times = _time_round(timer, order, skipped)
        order.reverse()
        rounds.append(_TimedRound(times, _find_worst_disturbance(times, threads)))
    return rounds, skipped


@dataclass(frozen=True, slots=True)
class _RoundTimer:
    """A round to be timed."""

    setup: BenchmarkSetup
    threads: int
    report: ReportDone
    before: int
    """Runs of earlier rounds."""

    def time(self, name: str) -> Timed:
        """Time one competitor. Raises StageError if it fails, or its outputs disagree."""
        inputs = self.setup.inputs
        timing = time_contender(
            name, self.setup.contenders[name], inputs, self.setup.options, self.threads
        )
        if name != OURS and not COMPETITORS[name].trusted:
            wrong = find_disagreement(
                find_outputs_path(OURS, inputs), find_outputs_path(name, inputs)
            )
            if wrong:
                raise StageError(wrong)
        return timing


def _time_round(
    timer: _RoundTimer, order: Iterable[str], skipped: dict[str, str]
) -> dict[str, Timed]:
    """Time the competitors in order; a reference runtime that fails is added to `skipped`."""
    times: dict[str, Timed] = {}
    for name in order:
        if name in skipped:
            continue
        timer.report(timer.before + len(times))
        try:
            times[name] = timer.time(name)
        except StageError as error:
            if name == OURS:
                raise
            skipped[name] = str(error)
    return times


def _find_worst_disturbance(times: Mapping[str, Timed], threads: int) -> Disturbance | None:
    """Return the largest disturbance of a round; None if there was none."""
    disturbances = (disturbance(timing.conditions, threads) for timing in times.values())
    return max(filter(None, disturbances), key=lambda found: found.share, default=None)


def _summarize_contenders(
    rounds: Sequence[_TimedRound], skipped: Collection[str]
) -> dict[str, TimedContender]:
    """Summarize the competitors that were timed in every round."""
    first = rounds[0].timed  # in the order of the setup
    return {
        name: TimedContender(
            name=name,
            version=rounds[-1].timed[name].version,
            latency=summarize_rounds([one.timed[name].seconds for one in rounds]),
        )
        for name in first
        if name not in skipped
    }


def _describe_disturbance(rounds: Sequence[_TimedRound]) -> str:
    """Describe the largest disturbance, and the number of disturbed rounds."""
    disturbances = [one.worst for one in rounds if one.worst is not None]
    worst = max(disturbances, key=lambda found: found.share)
    return f"{worst} in {len(disturbances)} of {len(rounds)} rounds"


def _find_obstacle(competitor: str, model: Path) -> str | None:
    """Return why a reference runtime cannot run a model, or None."""
    if not model.exists():
        return "it runs ONNX models, and this is none"
    return COMPETITORS[competitor].obstacle()


def describe_machine(load_before: float, gpu: str | None = None) -> BenchmarkMachine:
    """Describe the machine after the last round."""
    return BenchmarkMachine(
        cpu=cpu.read_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        gpu=gpu,
        load_before=load_before,
        load_after=load_average(),
    )
