"""What is measured against what runs: `python benchmarks/clocks.py PIPELINES`.

Each pipeline is built twice, tuned by the clock `loop` and by the clock `model` (ADR 0049), with
all its tasks kept. Then both builds run in turn, each in a process of its own. The columns are the
latency of the whole, what its kernels take inside of it, what the trials of the tuner come to, and
what it recorded inside the model (ADR 0052), where trials decide all the same; below 1 the tuner
saw less time than the model takes. The last column is how the two builds race.
`--budget 'trials: 400, time: 5m'` searches; without it only schedules that need no search are
measured, and both builds may differ in the winners of a repeated measurement alone.

Builds and times are kept in a folder, so the work can be done in parts: `build --folder F`,
`time --folder F`, `table --folder F`.
"""

import json
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import in_parts
from kernels import our_kernels
from safetensors.numpy import load_file

import autopipe
from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.tuning import TuningReport
from autopipe.benchmarking.contender import time_contender
from autopipe.config.benchmark import Benchmark
from autopipe.tasks.task import read_tasks

CLOCKS: Final = ("loop", "model")
ROUNDS: Final = 5
EVERY: Final = (
    "tasks.heuristics=null", "tasks.include_simple_task=true", "tasks.include=['*']",
    "tasks.exclude=[]", "verify=null", "benchmark=null", "package=null", "gates={}",
)  # fmt: skip
"""Overrides with which all tasks are measured."""


def main() -> None:
    """Do the parts that are asked for."""
    parser = in_parts.parser(__doc__.partition("\n")[0], in_parts.PAIR_PARTS, ROUNDS)
    parser.add_argument("--budget", help="of tuning, as in a pipeline file; else no search")
    in_parts.compare(parser, TwoBuilds, _table)


@dataclass(frozen=True)
class TwoBuilds:
    """A pipeline, tuned by each clock, and its files."""

    path: Path
    kept: Path
    """The folder of all of them."""
    budget: str | None
    """Of the search; None measures what needs none."""

    @property
    def folder(self) -> Path:
        """Its own folder."""
        return self.kept / f"{self.path.stem}-{'searched' if self.budget else 'unsearched'}"

    def build(self) -> None:
        """Tune and build it by each clock, if that is not done."""
        for clock in CLOCKS:
            own = self.folder / clock
            if own.exists():
                continue
            budget = f"budget: {{{self.budget or ''}}}"
            measured = f"tuning={{{budget}, finalists: 1, measure: {{clock: {clock}}}}}"
            rules = () if self.budget else ("schedules.rules=[{engines: []}]",)
            found = autopipe.run(
                self.path, store=self.kept / f"store-{clock}",
                output=self.kept / "dist", overrides=[*EVERY, measured, *rules],
            )  # fmt: skip
            in_parts.keep(own, found)

    def time(self, rounds: int) -> None:
        """Time both builds in turn, if that is not done, and the kernels inside of each."""
        file = self.folder / "times.json"
        if file.exists():
            return
        inputs = self.folder / "inputs.safetensors"
        ports = BuiltLibrary.read(self.folder / "model" / "build").signature.inputs
        in_parts.write_inputs(ports, self.folder / "model" / "import", inputs)
        whole: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
        inside: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
        for turn in range(rounds):
            for clock in CLOCKS if turn % 2 else CLOCKS[::-1]:
                build = (self.folder / clock / "build").resolve()
                whole[clock] += time_contender("autopipe", build, inputs, Benchmark()).seconds
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                    inside[clock].append(pool.submit(kernel_time, build, inputs).result())
        file.write_text(json.dumps({"whole": whole, "inside": inside}), encoding="utf-8")

    def recorded(self, clock: str) -> float:
        """Return the seconds of one inference by the records of a clock."""
        folder = self.folder / clock
        calls = {task.workload: task.calls for task in read_tasks(folder / "tasks")}
        tuned = TuningReport.read(folder / "tune").tasks
        return sum(calls[task.workload] * (task.seconds or 0.0) for task in tuned)


def inside(pair: TwoBuilds, clock: str) -> float:
    """Return the seconds of one inference as tuning timed it inside the model; 0 if it did not."""
    comparisons = TuningReport.read(pair.folder / clock / "tune").comparisons
    return comparisons[0].run if comparisons else 0.0


def kernel_time(build: Path, inputs: Path) -> float:
    """Return the seconds of all kernels of one inference, as the virtual machine tells of them."""
    return sum(kernel.seconds for kernel in our_kernels(build, load_file(inputs)))


def _table(pairs: Sequence[TwoBuilds]) -> Iterator[str]:
    yield (
        "| pipeline | clock | whole | kernels inside | trials | of the whole | recorded inside "
        "| of the whole | model / loop |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    raced = []
    shares: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
    for pair in pairs:
        file = pair.folder / "times.json"
        if not file.exists():
            continue
        times = json.loads(file.read_text())
        least, middle = (
            [of(times["whole"][clock]) for clock in CLOCKS] for of in (min, statistics.median)
        )
        raced.append((least[1] / least[0], middle[1] / middle[0]))
        for clock, whole in zip(CLOCKS, middle, strict=True):
            records = pair.recorded(clock)
            shares[clock].append(records / whole)
            ratio = f"{raced[-1][0]:.2f}, medians {raced[-1][1]:.2f}" if clock == "model" else ""
            seconds = (whole, statistics.median(times["inside"][clock]), records)
            cells = " | ".join(f"{cell * 1e3:.3g} ms" for cell in seconds)
            own = inside(pair, clock)
            cells += f" | {records / whole:.2f} | {own * 1e3:.3g} ms | {own / whole:.2f}"
            yield f"| {pair.path.stem} | {clock} | {cells} | {ratio} |"
    if raced:
        parts = ", ".join(f"{statistics.geometric_mean(shares[clock]):.2f}" for clock in CLOCKS)
        means = [statistics.geometric_mean(ratios) for ratios in zip(*raced, strict=True)]
        ratio = f"{means[0]:.2f}, medians {means[1]:.2f}"
        yield f"| **geometric mean** | {', '.join(CLOCKS)} | | | | {parts} | | | {ratio} |"


if __name__ == "__main__":
    main()
