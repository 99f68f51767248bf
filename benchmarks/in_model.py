"""The gain of the in-model comparison: `python benchmarks/in_model.py PIPELINES`.

Each pipeline is tuned once (`--budget 'trials: 400, time: 5m'`), with all its tasks kept, and built
twice: with the winners of the in-model comparison (ADR 0052), and with those of the trials. Both
run in turn, each in a process of its own. *Reported* is the gain by the comparison. *Inside* is the
time of the whole by the comparison, and *trials* the sum of all tasks by their trials, both as
parts of the latency.

The work can be done in parts: `build --folder F`, `time --folder F`, `table --folder F`.
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
from clocks import EVERY

import autopipe
from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.tuning import TuningResult
from autopipe.benchmarking.contender import time_contender
from autopipe.benchmarking.interval import Interval
from autopipe.compiler.tvm_probe import examine_tvm
from autopipe.config.benchmark import Benchmark
from autopipe.config.load import load
from autopipe.environment.environment import Host
from autopipe.pipeline.stage import Context
from autopipe.stages.build import BuildStage
from autopipe.store.store import open_store
from autopipe.tasks.task import read_tasks

BY: Final = ("trials", "model")
"""The measurement that selects the winners of a build."""
ROUNDS: Final = 9
BUDGET: Final = "trials: 400, time: 5m"


def main() -> None:
    """Do the parts that are asked for."""
    parser = in_parts.parser(__doc__.partition("\n")[0], in_parts.PAIR_PARTS, ROUNDS)
    parser.add_argument("--budget", default=BUDGET, help="of tuning, as in a pipeline file")
    in_parts.compare(parser, Decision, _table)


@dataclass(frozen=True)
class Decision:
    """A pipeline, tuned once and built by both decisions."""

    path: Path
    kept: Path
    """The folder of all of them."""
    budget: str

    @property
    def folder(self) -> Path:
        """Its own folder."""
        return self.kept / self.path.stem

    def build(self) -> None:
        """Tune it and build it twice, if that is not done."""
        own = self.folder / "model"
        if not own.exists():
            found = autopipe.run(
                self.path, store=self.kept / "store", output=self.kept / "dist",
                overrides=[*EVERY, f"tuning.budget={{{self.budget}}}"],
            )  # fmt: skip
            in_parts.keep(own, found)
        if not (self.folder / "trials").exists():
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                pool.submit(build_by_trials, self.path, own, self.kept / "store").result()

    def time(self, rounds: int) -> None:
        """Time both builds in turn, if that is not done."""
        file = self.folder / "times.json"
        if file.exists():
            return
        inputs = self.folder / "inputs.safetensors"
        ports = BuiltLibrary.read(self.folder / "model" / "build").signature.inputs
        in_parts.write_inputs(ports, self.folder / "model" / "import", inputs)
        times: dict[str, list[float]] = {by: [] for by in BY}
        for turn in range(rounds):
            for by in BY if turn % 2 else BY[::-1]:
                build = (self.folder / by / "build").resolve()
                seconds = time_contender("autopipe", build, inputs, Benchmark()).seconds
                times[by].append(statistics.median(seconds))
        file.write_text(json.dumps(times), encoding="utf-8")


def build_by_trials(path: Path, own: Path, root: Path) -> None:
    """Build a tuned pipeline anew with the winners of the trials."""
    tuned = TuningResult.read(own / "tune")
    before = {t.workload: t.in_model.replaced for t in tuned.report.tasks if t.in_model}
    records = {
        name: record.model_copy(update=was.model_dump()) if (was := before.get(name)) else record
        for name, record in tuned.records.items()
    }
    folder = own.with_name("trials")
    part = own.with_name("trials.part")
    for name in ("tune", "build", "work"):
        (part / name).mkdir(parents=True, exist_ok=True)
    TuningResult(tuned.report, records).write(part / "tune")
    pipeline = load(path)
    stage = BuildStage.of(pipeline, path.parent)
    inputs = {name: (own / name).resolve() for name in stage.needs} | {"tune": part / "tune"}
    with open_store(root) as store:
        host = Host(pipeline.target, store, lambda: examine_tvm({}, print))
        facts = host.facts(stage.reads)
    made = Context(inputs, facts, part / "build", part / "work", root / "records.sqlite", print)
    stage.run(made)
    part.rename(folder)


def _table(pairs: Sequence[Decision]) -> Iterator[str]:
    yield (
        "| pipeline | tasks | decided | changed | reported | by trials | in the model | ratio "
        "| inside | trials |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    raced = []
    for pair in pairs:
        file = pair.folder / "times.json"
        if not file.exists():
            continue
        times = json.loads(file.read_text())
        comparisons = TuningResult.read(pair.folder / "model" / "tune").report.comparisons
        if not comparisons:
            continue
        report = comparisons[0]
        least, middle = ([of(times[by]) for by in BY] for of in (min, statistics.median))
        raced.append((least[1] / least[0], middle[1] / middle[0]))
        gain = Interval.of(report.gain) if report.gain else ""
        ratio = f"{raced[-1][0]:.3f}, medians {raced[-1][1]:.3f}"
        parts = " | ".join(f"{part / middle[1]:.2f}" for part in (report.run, recorded(pair)))
        yield (
            f"| {pair.path.stem} | {report.tasks} | {report.decided} | {report.changed} | {gain} "
            f"| {middle[0] * 1e3:.3g} ms | {middle[1] * 1e3:.3g} ms | {ratio} | {parts} |"
        )
    if raced:
        means = [statistics.geometric_mean(ratios) for ratios in zip(*raced, strict=True)]
        yield f"| **geometric mean** | | | | | | | {means[0]:.3f}, medians {means[1]:.3f} | | |"


def recorded(pair: Decision) -> float:
    """Return the seconds of one inference by the trials of all tasks."""
    calls = {task.workload: task.calls for task in read_tasks(pair.folder / "model" / "tasks")}
    tasks = TuningResult.read(pair.folder / "model" / "tune").report.tasks
    return sum(calls[task.workload] * (task.seconds or 0.0) for task in tasks)


if __name__ == "__main__":
    main()
