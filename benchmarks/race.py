"""Every pipeline against the best competitor: `python benchmarks/race.py [PIPELINES]`.

Latency with one thread and with two, untuned or tuned, against onnxruntime, OpenVINO and MNN, each
in a process of its own, in turn, in float32 and with as many threads as the build. One that
cannot run a model, or computes something else, is listed below the table. Ratios are of minimum
times, and of medians, to the best competitor in each; below 1 where the build is faster. Models
with dynamic shapes are timed at their first likely sizes.

Builds and times are kept in a folder, so the work can be done in parts:
`race.py build --folder F` builds only, `time --folder F --seconds 200` plays the rounds that are
missing and begins none after 200 seconds, `table --folder F` prints what is known, as Markdown.
`--tuned 'trials: 400, time: 15m'` builds both ways and has both take part, so that one run tells
what tuning brings, and what its records come to of the latency of the whole.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import in_parts
from turns import compare_times, head_table, summarize_ratios

import autopipe
from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.tuning import TuningReport
from autopipe.benchmarking.agreement import find_disagreement
from autopipe.benchmarking.competitors import COMPETITORS
from autopipe.benchmarking.conditions import disturbance
from autopipe.benchmarking.contender import find_outputs_path, time_contender
from autopipe.config.benchmark import Benchmark
from autopipe.config.dimension import list_likely_sizes
from autopipe.errors import AutopipeError, StageError
from autopipe.tasks.task import read_tasks

PARTS: Final = ("build", "time", "table")
ROUNDS: Final = 5
OURS: Final = "autopipe"
UNTUNED: Final = "untuned"
"""Our own build without tuning, which takes part beside a tuned one."""
GAINS: Final = (
    "pipeline", "untuned", "tuned", "tuned / untuned", "of medians", "recorded", "of the whole",
)  # fmt: skip
ROUND: Final = Benchmark(warmup=2, repeat=5)

Times = dict[str, list[float]]
"""Seconds of each run by contender."""


def main() -> None:
    """Do the parts that are asked for."""
    parser = in_parts.parser(__doc__.partition("\n")[0], PARTS, ROUNDS)
    parser.add_argument("--threads", type=int, action="append", help="of each; else 1, and then 2")
    parser.add_argument("--competitors", nargs="+", choices=COMPETITORS, default=[*COMPETITORS])
    parser.add_argument("--tuned", help="budget of tuning, as in a pipeline file; else untuned")
    options = parser.parse_intermixed_args()
    counts = options.threads or [1, 2]
    parts, files = in_parts.asked(options.parts, PARTS)
    files = files or sorted(Path("pipelines").glob("*.yaml"))
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.folder or Path(scratch)).absolute()
        subjects = [
            Subject(path, folder, threads, options.tuned, tuple(options.competitors))
            for path in files
            for threads in counts
        ]
        do(parts, subjects, options.rounds, options.seconds)


def do(parts: Sequence[str], subjects: Sequence["Subject"], rounds: int, seconds: float) -> None:
    """Build the subjects, time them and print the tables, as far as these parts are asked for."""
    if "build" in parts:
        for subject in subjects:
            for built in filter(None, (subject.untuned, subject)):
                built.build()
    if "time" in parts:
        _time(subjects, rounds, seconds)
    if "table" in parts:
        for threads in dict.fromkeys(subject.threads for subject in subjects):
            shown = [subject for subject in subjects if subject.threads == threads]
            print("\n".join(_table(threads, shown)))
            if any(subject.budget for subject in shown):
                print("\n".join(_gains(shown)))


@dataclass(frozen=True)
class Subject:
    """A pipeline, built for so many threads, and its files."""

    path: Path
    kept: Path
    """The folder of all of them."""
    threads: int
    budget: str | None
    """Of tuning; None is untuned."""
    competitors: Sequence[str]

    @property
    def folder(self) -> Path:
        """Its own folder."""
        tuned = "tuned" if self.budget else "untuned"
        return self.kept / self.path.stem / f"{self.threads}-{tuned}"

    @property
    def untuned(self) -> "Subject | None":
        """The same one without tuning, or None if this is it."""
        return replace(self, budget=None) if self.budget else None

    def build(self) -> None:
        """Build and verify it, if that is not done; say so where that fails."""
        if (self.folder / "build").exists():
            return
        tuning = f"tuning.budget={{{self.budget}}}" if self.budget else "tuning=null"
        settings = [tuning, f"target.num_cores={self.threads}", "benchmark=null", "package=null"]
        start = time.monotonic()
        try:
            found = autopipe.run(self.path, store=self.kept / "store", overrides=settings)
        except AutopipeError as error:
            print(f"{self.path.stem}: {error}", flush=True)
            return
        stages = ("tasks", "tune") if self.budget else ()
        in_parts.keep(self.folder, found, ("import", "build", *stages))
        print(f"{self.path.stem}: {time.monotonic() - start:.0f} s", flush=True)

    def rounds(self) -> list[Times]:
        """Return the rounds that were played."""
        file = self.folder / "rounds.json"
        return json.loads(file.read_text()) if file.exists() else []

    def disturbed(self) -> list[str]:
        """Return each turn that others disturbed, and how."""
        file = self.folder / "disturbed.json"
        return json.loads(file.read_text()) if file.exists() else []

    def skipped(self) -> dict[str, str]:
        """Return the competitors that cannot be timed, and why."""
        file = self.folder / "skipped.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def play(self) -> None:
        """Play one round, and keep its times."""
        played, skipped = self.rounds(), self.skipped()
        inputs = self._inputs()
        model = (self.folder / "import" / "reference.onnx").resolve()
        paths = {OURS: (self.folder / "build").resolve(), **dict.fromkeys(self.competitors, model)}
        if self.untuned:
            paths |= {UNTUNED: (self.untuned.folder / "build").resolve()}
        order = list(paths) if len(played) % 2 == 0 else list(paths)[::-1]
        times: Times = {}
        disturbed = self.disturbed()
        for name in order:
            if name in skipped:
                continue
            try:
                timed = time_contender(name, paths[name], inputs, ROUND, self.threads)
                times[name] = timed.seconds
                if found := disturbance(timed.conditions, self.threads):
                    disturbed.append(f"{name}: {found}")
            except StageError as error:
                if name not in COMPETITORS:
                    raise
                skipped[name] = str(error)
        for name in [
            name for name in times if name in COMPETITORS and not COMPETITORS[name].trusted
        ]:
            wrong = find_disagreement(
                find_outputs_path(OURS, inputs), find_outputs_path(name, inputs)
            )
            if wrong:
                skipped[name] = wrong
        (self.folder / "skipped.json").write_text(json.dumps(skipped), encoding="utf-8")
        (self.folder / "disturbed.json").write_text(json.dumps(disturbed), encoding="utf-8")
        (self.folder / "rounds.json").write_text(json.dumps([*played, times]), encoding="utf-8")

    def _inputs(self) -> Path:
        """Return the file of inputs, made once."""
        file = self.folder / "inputs.safetensors"
        if not file.exists():
            ports = BuiltLibrary.read(self.folder / "build").signature.at(_sizes(self.folder))
            in_parts.write_inputs(ports, self.folder / "import", file)
        return file

    def times(self) -> Times | None:
        """Return the seconds of all runs of each contender never skipped; None before a round."""
        played = self.rounds()
        if not played:
            return None
        ours = (OURS, UNTUNED) if self.untuned else (OURS,)
        names = [name for name in (*ours, *self.competitors) if name not in self.skipped()]
        return {name: [run for one in played for run in one[name]] for name in names}


def _time(subjects: Sequence[Subject], rounds: int, seconds: float) -> None:
    """Play the rounds that are missing, one of each subject after the other."""
    start = time.monotonic()
    for count in range(rounds):
        for subject in subjects:
            if time.monotonic() - start > seconds:
                print("stopped here: time is up", flush=True)
                return
            if (subject.folder / "build").exists() and len(subject.rounds()) == count:
                subject.play()


def _table(threads: int, subjects: Sequence[Subject]) -> Iterator[str]:
    """Yield a table of all subjects, with a summary, and the skipped competitors."""
    names = [OURS, *subjects[0].competitors]
    yield f"With {threads} thread{'s' if threads > 1 else ''}:\n"
    yield head_table("pipeline", *names, "best competitor", "ratio", "of medians")
    known: list[tuple[float, float]] = []
    played = {len(subject.rounds()) for subject in subjects} - {0}
    for subject in subjects:
        times = subject.times()
        if times is None or not times.keys() & COMPETITORS.keys():
            continue
        known.append((_ratio(times, min), _ratio(times, statistics.median)))
        cells = [f"{min(times[name]) * 1e3:.3g} ms" if name in times else "" for name in names]
        best = min(
            (name for name in times if name in COMPETITORS), key=lambda name: min(times[name])
        )
        ratios = " | ".join(f"{ratio:.2f}" for ratio in known[-1])
        yield f"| {subject.path.stem} | {' | '.join(cells)} | {best} | {ratios} |"
    if known:
        means = " | ".join(summarize_ratios(known))
        yield f"| **geometric mean, worst** |{' |' * (len(names) + 1)} {means} |"
        turns = sum(len(times) for subject in subjects for times in subject.rounds())
        disturbed = sum(len(subject.disturbed()) for subject in subjects)
        yield f"\nMinimum of {min(played)} to {max(played)} rounds, {len(known)} pipelines."
        yield f"Other programs disturbed {disturbed} of {turns} turns.\n"
    for subject in subjects:
        for name, reason in subject.skipped().items():
            yield f"- {subject.path.stem}: {name} is left out: {reason}"
    yield ""


def _gains(subjects: Sequence[Subject]) -> Iterator[str]:
    """Yield a table of what tuning brings, and what it recorded of the latency of the whole."""
    yield head_table(*GAINS)
    known: list[tuple[float, float, float]] = []
    for subject in subjects:
        times = subject.times()
        if times is None:
            continue
        recorded = recorded_seconds(subject.folder)
        share = recorded / statistics.median(times[OURS])
        known.append((*compare_times(times[OURS], times[UNTUNED]), share))
        seconds = " | ".join(f"{min(times[name]) * 1e3:.3g} ms" for name in (UNTUNED, OURS))
        ratios = " | ".join(f"{ratio:.2f}" for ratio in known[-1][:2])
        cells = f"{seconds} | {ratios} | {recorded * 1e3:.3g} ms | {share:.2f}"
        yield f"| {subject.path.stem} | {cells} |"
    if known:
        minima, medians, shares = summarize_ratios(known)
        yield f"| **geometric mean, worst** | | | {minima} | {medians} | | {shares} |"
    yield ""


def recorded_seconds(folder: Path) -> float:
    """Return the seconds of one inference by *tune*: inside the model where that was timed.

    `folder` has the artifacts `build`, `tasks` and `tune`. Of a model with dynamic shapes it is one
    at the first likely ones. Without an in-model comparison it is the sum of the trials.
    """
    report = TuningReport.read(folder / "tune")
    for comparison in report.comparisons:
        if comparison.sizes == _sizes(folder):
            return comparison.run
    calls = {task.workload: task.calls for task in read_tasks(folder / "tasks")}
    return sum(calls[task.workload] * (task.seconds or 0.0) for task in report.tasks)


def _sizes(folder: Path) -> dict[str, int]:
    """Return the first likely sizes of a model that was built; {} of one with static shapes."""
    return dict(
        next(iter(list_likely_sizes(BuiltLibrary.read(folder / "build").signature.dimensions)), {})
    )


def _ratio(times: Times, of: Callable[[list[float]], float]) -> float:
    """Return our time as a multiple of the best competitor's."""
    return of(times[OURS]) / min(of(runs) for name, runs in times.items() if name in COMPETITORS)


if __name__ == "__main__":
    main()
