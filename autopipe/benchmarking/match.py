"""Lets the contenders take turns, each alone on the machine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from autopipe.benchmarking.contender import time_contender
from autopipe.benchmarking.latency import Comparison, Latency
from autopipe.benchmarking.machine import Machine, load_average, machine
from autopipe.config import Benchmark
from autopipe.config.frozen import Frozen
from autopipe.errors import StageError

OURS = "autopipe"


class Contender(Frozen, frozen=True):
    """One contender's result."""

    name: str
    """`autopipe` is the build."""
    version: str
    """Version of its runtime."""
    latency: Latency
    """Its times."""


class Match(Frozen, frozen=True):
    """What all contenders took."""

    machine: Machine
    """Where it was measured."""
    threads: int
    """Threads of the build; rivals choose their own."""
    warmup: int
    """Runs of each contender in each round that were not counted, at least."""
    repeat: int
    """Counted runs of each contender in each round, at least."""
    ours: Contender
    """The build."""
    rivals: tuple[Contender, ...]
    """The rivals that could be timed."""
    comparisons: dict[str, Comparison]
    """The build against each rival, by the rival's name."""
    skipped: dict[str, str]
    """Rivals that could not be timed, and why."""

    def summary(self) -> str:
        """Return one line for people."""
        parts = [_milliseconds(self.ours.latency)]
        for rival in self.rivals:
            found = self.comparisons[rival.name]
            parts.append(
                f"{rival.name} {_milliseconds(rival.latency)}: "
                f"ratio {found.ratio:.2f}, {found.verdict}"
            )
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Table:
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


def play(table: Table, threads: int) -> Match:
    """Time all contenders over all rounds.

    Raises StageError where the build fails; a rival that fails is recorded as skipped.
    """
    load_before = load_average()
    results, skipped = _rounds(table)
    ours = results.pop(OURS)
    return Match(
        machine=machine(load_before, table.gpu),
        threads=threads,
        warmup=table.options.warmup,
        repeat=table.options.repeat,
        ours=ours,
        rivals=tuple(results.values()),
        comparisons={
            name: Comparison.of(ours.latency, rival.latency) for name, rival in results.items()
        },
        skipped=skipped,
    )


def _rounds(table: Table) -> tuple[dict[str, Contender], dict[str, str]]:
    seconds: dict[str, list[list[float]]] = {name: [] for name in table.contenders}
    versions: dict[str, str] = {}
    obstacles = {name: _obstacle(name, path) for name, path in table.contenders.items()}
    skipped = {name: reason for name, reason in obstacles.items() if reason and name != OURS}
    for turn in range(table.options.rounds):
        order = list(table.contenders)
        for name in order if turn % 2 == 0 else reversed(order):
            if name in skipped:
                continue
            table.tell(f"round {turn + 1} of {table.options.rounds}: {name}")
            try:
                path = table.contenders[name]
                runs, versions[name] = time_contender(name, path, table.inputs, table.options)
                seconds[name].append(runs)
            except StageError as error:
                if name == OURS:
                    raise
                skipped[name] = str(error)
    results = {
        name: Contender(name=name, version=versions[name], latency=Latency.of(seconds[name]))
        for name in table.contenders
        if name not in skipped
    }
    return results, skipped


def _obstacle(rival: str, model: Path) -> str | None:
    """Return why a rival can not be timed on a model, or None."""
    if not model.exists():
        return "it runs ONNX models, and this is none"
    return None if find_spec(rival) else "it is not installed"


def _milliseconds(latency: Latency) -> str:
    return f"{latency.median * 1e3:.3g} ms ({latency.low * 1e3:.3g} to {latency.high * 1e3:.3g})"
