"""Lets the contenders take turns, each alone on the machine."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autopipe.artifacts.benchmark import BenchmarkResult, Round, TimedContender, find_best_rival
from autopipe.benchmarking.agreement import find_disagreement
from autopipe.benchmarking.conditions import Disturbance, disturbance, load_average
from autopipe.benchmarking.contender import Timed, find_outputs_path, time_contender
from autopipe.benchmarking.latency import compare_latencies, summarize_rounds
from autopipe.benchmarking.machine import describe_machine
from autopipe.benchmarking.rivals import RIVALS
from autopipe.compiler.step_counter import ReportDone, count_steps
from autopipe.config.benchmark import Benchmark
from autopipe.errors import StageError

OURS = "autopipe"


@dataclass(frozen=True, slots=True)
class BenchmarkSetup:
    """What is timed, on what, and how often."""

    contenders: Mapping[str, Path]
    """The build under `autopipe`, and the model that each rival runs, by the rival's name."""
    inputs: Path
    """The inputs of every run, as safetensors."""
    options: Benchmark
    """How often."""
    gpu: str | None = None
    """Name of the GPU that the build runs on."""


@dataclass(frozen=True, slots=True)
class _Played:
    """A round: the times of each contender, and the worst that disturbed one of them."""

    timed: Mapping[str, Timed]
    worst: Disturbance | None

    @property
    def told(self) -> Round:
        conditions = {name: timed.conditions for name, timed in self.timed.items()}
        return Round(conditions=conditions, disturbed=str(self.worst or ""))


def time_contenders(table: BenchmarkSetup, threads: int) -> BenchmarkResult:
    """Time all contenders over all rounds; those that were disturbed do not count if most were not.

    Raises StageError where the build fails; a rival that fails is recorded as skipped.
    """
    load_before = load_average()
    played, skipped = _time_rounds(table, threads)
    quiet = [one for one in played if one.worst is None]
    enough = 2 * len(quiet) > len(played)
    results = _summarize_contenders(quiet if enough else played, skipped)
    ours = results.pop(OURS)
    return BenchmarkResult(
        machine=describe_machine(load_before, table.gpu),
        threads=threads,
        warmup=table.options.warmup,
        repeat=table.options.repeat,
        ours=ours,
        rivals=tuple(results.values()),
        comparisons={
            name: compare_latencies(ours.latency, rival.latency, disturbed=not enough)
            for name, rival in results.items()
        },
        skipped=skipped,
        rounds=tuple(one.told for one in played),
        disturbed="" if enough else _describe_disturbance(played),
        best=find_best_rival({name: rival.latency for name, rival in results.items()}),
    )


def _time_rounds(table: BenchmarkSetup, threads: int) -> tuple[list[_Played], dict[str, str]]:
    """Play all rounds; return them, and who was skipped."""
    rivals = {name: path for name, path in table.contenders.items() if name != OURS}
    obstacles = {name: _find_obstacle(name, path) for name, path in rivals.items()}
    skipped = {name: reason for name, reason in obstacles.items() if reason}
    played: list[_Played] = []
    order = list(table.contenders)
    runs = len(order) - len(skipped)
    report = count_steps("runs timed", table.options.rounds * runs)
    for place in range(table.options.rounds):
        turns = _Turns(table, threads, report, place * runs)
        timed = _time_round(turns, order, skipped)
        order.reverse()
        played.append(_Played(timed, _find_worst_disturbance(timed, threads)))
    return played, skipped


@dataclass(frozen=True, slots=True)
class _Turns:
    """A round that is to be played."""

    table: BenchmarkSetup
    threads: int
    report: ReportDone
    before: int
    """Runs of earlier rounds."""

    def play(self, name: str) -> Timed:
        """Time one contender. Raises StageError where it fails, or computes something else."""
        inputs = self.table.inputs
        found = time_contender(
            name, self.table.contenders[name], inputs, self.table.options, self.threads
        )
        if name != OURS and not RIVALS[name].trusted:
            wrong = find_disagreement(
                find_outputs_path(OURS, inputs), find_outputs_path(name, inputs)
            )
            if wrong:
                raise StageError(wrong)
        return found


def _time_round(turns: _Turns, order: Iterable[str], skipped: dict[str, str]) -> dict[str, Timed]:
    """Time one contender after the other; a rival that fails is added to `skipped`."""
    timed: dict[str, Timed] = {}
    for name in order:
        if name in skipped:
            continue
        turns.report(turns.before + len(timed))
        try:
            timed[name] = turns.play(name)
        except StageError as error:
            if name == OURS:
                raise
            skipped[name] = str(error)
    return timed


def _find_worst_disturbance(timed: Mapping[str, Timed], threads: int) -> Disturbance | None:
    """Return what disturbed a round most."""
    disturbances = (disturbance(timing.conditions, threads) for timing in timed.values())
    return max(filter(None, disturbances), key=lambda found: found.share, default=None)


def _summarize_contenders(
    played: Sequence[_Played], skipped: Collection[str]
) -> dict[str, TimedContender]:
    """Sum up the contenders, ours and those that were timed in every round."""
    first = played[0].timed  # in the order of the table
    return {
        name: TimedContender(
            name=name,
            version=played[-1].timed[name].version,
            latency=summarize_rounds([one.timed[name].seconds for one in played]),
        )
        for name in first
        if name not in skipped
    }


def _describe_disturbance(played: Sequence[_Played]) -> str:
    """Say what disturbed most, and how often something did."""
    disturbed = [one.worst for one in played if one.worst is not None]
    worst = max(disturbed, key=lambda found: found.share)
    return f"{worst} in {len(disturbed)} of {len(played)} rounds"


def _find_obstacle(rival: str, model: Path) -> str | None:
    """Return why a rival can not be timed on a model, or None."""
    if not model.exists():
        return "it runs ONNX models, and this is none"
    return RIVALS[rival].obstacle()
