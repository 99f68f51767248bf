"""Lets the contenders take turns, each alone on the machine."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from autopipe.artifacts.benchmark import BenchmarkResult, Round, TimedContender
from autopipe.benchmarking.conditions import Disturbance, disturbance, load_average
from autopipe.benchmarking.contender import Timed, time_contender
from autopipe.benchmarking.latency import compared, summed
from autopipe.benchmarking.machine import machine
from autopipe.config import Benchmark
from autopipe.errors import StageError

OURS = "autopipe"

_TIMES: Final = 2
"""How many times the rounds that are asked for are played at most, to have as many quiet ones."""


@dataclass(frozen=True, slots=True)
class BenchmarkSetup:
    """Where a match is played: what is timed, on what, how, and who hears of it."""

    contenders: Mapping[str, Path]
    """The build under `autopipe`, and the model that each rival runs, by the rival's name."""
    inputs: Path
    """The inputs of every run, as safetensors."""
    options: Benchmark
    """How often."""
    tell: Callable[[str], None]
    """Hears who is timed."""
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


def play(table: BenchmarkSetup, threads: int) -> BenchmarkResult:
    """Time all contenders over all rounds; those that were disturbed are played again.

    Raises StageError where the build fails; a rival that fails is recorded as skipped.
    """
    load_before = load_average()
    played, skipped = _rounds(table, threads)
    quiet = [one for one in played if one.worst is None]
    enough = len(quiet) >= table.options.rounds
    results = _results(quiet if enough else played, skipped)
    ours = results.pop(OURS)
    return BenchmarkResult(
        machine=machine(load_before, table.gpu),
        threads=threads,
        warmup=table.options.warmup,
        repeat=table.options.repeat,
        ours=ours,
        rivals=tuple(results.values()),
        comparisons={
            name: compared(ours.latency, rival.latency, disturbed=not enough)
            for name, rival in results.items()
        },
        skipped=skipped,
        rounds=tuple(one.told for one in played),
        disturbed="" if enough else _disturbed(played),
    )


def _rounds(table: BenchmarkSetup, threads: int) -> tuple[list[_Played], dict[str, str]]:
    """Play until enough rounds were quiet, or it is no use; return them, and who was skipped."""
    obstacles = {name: _obstacle(name, path) for name, path in table.contenders.items()}
    skipped = {name: reason for name, reason in obstacles.items() if reason and name != OURS}
    played: list[_Played] = []
    quiet, wanted = 0, table.options.rounds
    while quiet < wanted and len(played) < _TIMES * wanted:
        again = f" again, as {played[-1].worst}" if played and played[-1].worst else ""
        title = f"round {quiet + 1} of {wanted}{again}"
        order = list(table.contenders)
        timed = _turns(table, order if len(played) % 2 == 0 else order[::-1], title, skipped)
        played.append(_Played(timed, _worst(timed, threads)))
        quiet += played[-1].worst is None
    return played, skipped


def _turns(
    table: BenchmarkSetup, order: Iterable[str], title: str, skipped: dict[str, str]
) -> dict[str, Timed]:
    """Time one contender after the other; a rival that fails is added to `skipped`."""
    timed: dict[str, Timed] = {}
    for name in order:
        if name in skipped:
            continue
        table.tell(f"{title}: {name}")
        try:
            path = table.contenders[name]
            timed[name] = time_contender(name, path, table.inputs, table.options)
        except StageError as error:
            if name == OURS:
                raise
            skipped[name] = str(error)
    return timed


def _worst(timed: Mapping[str, Timed], threads: int) -> Disturbance | None:
    """Return what disturbed a round most; rivals want all processors that there are."""
    disturbances = (
        disturbance(timing.conditions, threads if name == OURS else timing.conditions.cores)
        for name, timing in timed.items()
    )
    return max(filter(None, disturbances), key=lambda found: found.share, default=None)


def _results(played: Sequence[_Played], skipped: Collection[str]) -> dict[str, TimedContender]:
    """Sum up the contenders, ours and those that were timed in every round."""
    first = played[0].timed  # in the order of the table
    return {
        name: TimedContender(
            name=name,
            version=played[-1].timed[name].version,
            latency=summed([one.timed[name].seconds for one in played]),
        )
        for name in first
        if name not in skipped
    }


def _disturbed(played: Sequence[_Played]) -> str:
    """Say what disturbed most, and how often something did."""
    disturbed = [one.worst for one in played if one.worst is not None]
    worst = max(disturbed, key=lambda found: found.share)
    return f"{worst} in {len(disturbed)} of {len(played)} rounds"


def _obstacle(rival: str, model: Path) -> str | None:
    """Return why a rival can not be timed on a model, or None."""
    if not model.exists():
        return "it runs ONNX models, and this is none"
    return None if find_spec(rival) else "it is not installed"
