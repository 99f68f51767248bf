"""Packages for every size: `python benchmarks/dynamic_sizes.py [PIPELINES]`.

A package with dynamic shapes against builds for one size, and against onnxruntime with its dynamic
dimensions: at likely sizes, where a library of its own runs, and at others, where the generic
one does. Then the size of the package and the number of its tasks, against those of a build for
the first likely sizes, and the memory of a process that calls it at random sizes. At last both are
tuned with as many trials, and timed at the first likely sizes. Each contender runs in a process
of its own, in turn. Ratios are of minimum times, below 1 where the package is faster or smaller.

Builds and times are kept in a folder, so the work can be done in parts:
`dynamic_sizes.py build --folder F` builds only, `time --folder F --seconds 200` times what has no
times yet and begins no size after 200 seconds, `memory --folder F` calls, `trials --folder F`
tunes, `table --folder F` prints what is known, as Markdown.
"""

import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import in_parts
import yaml
from random_sizes import drawn_sizes, residents

import autopipe
from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.tuning import TuningReport
from autopipe.benchmarking.at_sizes import choose_timed_sizes
from autopipe.benchmarking.contender import time_contender
from autopipe.config.benchmark import Benchmark
from autopipe.config.dimension import Sizes, list_end_sizes, list_likely_sizes
from autopipe.config.load import load
from autopipe.config.paths import find_model_path
from autopipe.config.pipeline import Pipeline
from autopipe.tasks.task import read_tasks

PIPELINES: Final = tuple(
    Path("pipelines", f"{name}.yaml") for name in ("encoder", "finder", "recognizer", "sequences")
)
PARTS: Final = ("build", "time", "memory", "trials", "table")
ROUNDS: Final = 3
CALLS: Final = 10_000
TRIALS: Final = 96
LIKELY: Final = 2
"""Most likely sizes of one package that are timed."""
OPEN, STATIC, COMPETITOR = "open", "static", "onnxruntime"

Times = dict[str, list[float]]
"""Seconds of each run by contender."""


def main() -> None:
    """Do the parts that are asked for."""
    parser = in_parts.parser(__doc__.partition("\n")[0], PARTS, ROUNDS)
    parser.add_argument("--seconds", type=float, default=math.inf, help="time for the timing")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls whose memory is looked at")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each tuning")
    parser.add_argument("--set", action="append", help="of the builds; else tuning=null")
    options = parser.parse_intermixed_args()
    parts, named = in_parts.asked(options.parts, PARTS)
    files = named or PIPELINES
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.folder or Path(scratch)).absolute()
        subjects = [Subject(path, folder, options.set or ["tuning=null"]) for path in files]
        for subject in subjects if "build" in parts else ():
            subject.build()
        if "time" in parts:
            _time(subjects, options.rounds, options.seconds)
        for subject in subjects if "memory" in parts else ():
            subject.call(options.calls)
        for subject in subjects if "trials" in parts else ():
            subject.tune(options.trials, options.rounds)
        if "table" in parts:
            print("\n".join(_table(subjects)))


@dataclass(frozen=True)
class Subject:
    """A pipeline with dynamic shapes, and its files."""

    path: Path
    kept: Path
    """The folder of all of them."""
    settings: Sequence[str]
    """What the builds have besides the file, as `--set` takes it."""

    @property
    def folder(self) -> Path:
        """Its own folder."""
        return self.kept / self.path.stem

    @property
    def memory(self) -> Path:
        """The file of what memory it takes."""
        return self.folder / "memory.json"

    @property
    def tuned(self) -> Path:
        """The file of how tuned builds did."""
        return self.folder / "tuned.json"

    @cached_property
    def pipeline(self) -> Pipeline:
        """What the file says."""
        return load(self.path)

    @cached_property
    def likely(self) -> Sequence[Sizes]:
        """Likely sizes that are timed."""
        return list_likely_sizes(self.pipeline.model.dimensions)[:LIKELY]

    @cached_property
    def sizes(self) -> Sequence[Sizes]:
        """All sizes that are timed: likely ones first, then the smallest, one off, others."""
        dimensions = self.pipeline.model.dimensions
        known = list_likely_sizes(dimensions)
        off = {name: min(known[0][name] + one.multiple, one.last)
               for name, one in dimensions.items()}  # fmt: skip
        drawn = drawn_sizes(dimensions, seed=1)
        others = [list_end_sizes(dimensions)[0], off, *choose_timed_sizes(dimensions), next(drawn)]
        found = {_label(sizes): sizes for sizes in others if sizes not in known}
        return [*self.likely, *found.values()]

    def build(self) -> None:
        """Build it with dynamic shapes, and for each size alone, if that is not done."""
        self._built(self.path, OPEN)
        for sizes in self.sizes:
            self._built(self.write_fixed(sizes), _label(sizes))

    def write_fixed(self, sizes: Sizes) -> Path:
        """Write the pipeline with static shapes, and return its path."""
        document = yaml.safe_load(self.path.read_text(encoding="utf-8"))
        del document["model"]["dimensions"]
        document["model"]["path"] = str(
            find_model_path(self.pipeline.model, self.path.parent).resolve()
        )
        for name, given in self.pipeline.model.inputs.items():
            document["model"]["inputs"][name]["shape"] = list(given.at(sizes).sizes)
        path = self.folder / f"{_label(sizes)}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def _built(self, path: Path, label: str, settings: Sequence[str] = ()) -> Path:
        """Return the folder of what a pipeline makes, which is made if it is not there."""
        if not (self.folder / label).exists():
            overrides = [*(settings or self.settings), "verify=null", "benchmark=null"]
            store, output = self.kept / "store", self.folder / "dist"
            found = autopipe.run(path, store=store, output=output, overrides=overrides)
            in_parts.keep(self.folder / label, found)
        return self.folder / label

    def times(self, sizes: Sizes) -> Times | None:
        """Return the seconds of each run at certain sizes, or None if they were not timed."""
        path = self.folder / f"{_label(sizes)}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def time(self, sizes: Sizes, rounds: int) -> None:
        """Time all contenders in turn, and keep the times."""
        label = _label(sizes)
        contenders = {
            OPEN: ("autopipe", self.folder / OPEN / "build"),
            STATIC: ("autopipe", self.folder / label / "build"),
            COMPETITOR: ("onnxruntime", self.folder / OPEN / "import" / "reference.onnx"),
        }
        times = self._turns(sizes, contenders, rounds)
        (self.folder / f"{label}.json").write_text(json.dumps(times), encoding="utf-8")

    def _turns(self, sizes: Sizes, contenders: dict[str, tuple[str, Path]], rounds: int) -> Times:
        inputs = self.folder / "inputs.safetensors"
        ports = BuiltLibrary.read(self.folder / OPEN / "build").signature.at(sizes)
        imported = (self.folder / OPEN / "import").resolve()
        in_parts.write_inputs(ports, imported, inputs)
        times: Times = {name: [] for name in contenders}
        for _ in range(rounds):
            for contender, (runtime, path) in contenders.items():
                timed = time_contender(runtime, path.resolve(), inputs, Benchmark())
                times[contender] += timed.seconds
        return times

    def tune(self, trials: int, rounds: int) -> None:
        """Tune it and its first likely sizes alone, time both at these, and keep what that gave."""
        if self.tuned.exists():
            return
        sizes = self.likely[0]
        budget = [f"tuning.budget={{trials: {trials}, time: 1h}}"]
        folders = {
            STATIC: self._built(self.write_fixed(sizes), "tuned-alone", budget),
            OPEN: self._built(self.path, "tuned-open", budget),
        }
        builds = {name: ("autopipe", folder / "build") for name, folder in folders.items()}
        found = {
            "trials": {name: _trials(folder / "tune") for name, folder in folders.items()},
            "times": self._turns(sizes, builds, rounds),
        }
        self.tuned.write_text(json.dumps(found), encoding="utf-8")

    def call(self, calls: int) -> None:
        """Call it at random sizes in a process of its own, and keep what memory that took."""
        if self.memory.exists():
            return
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found = pool.submit(residents, self.folder / OPEN / "build", calls).result()
        self.memory.write_text(json.dumps(found), encoding="utf-8")


def _time(subjects: Sequence[Subject], rounds: int, seconds: float) -> None:
    """Time what has no times yet, and begin nothing after so many seconds."""
    end = time.monotonic() + seconds
    left = [
        (subject, sizes)
        for subject in subjects
        for sizes in subject.sizes
        if subject.times(sizes) is None
    ]
    while left and time.monotonic() < end:
        subject, sizes = left.pop(0)
        subject.time(sizes, rounds)
    print(f"{len(left)} sizes are left to time", flush=True)


def _table(subjects: Sequence[Subject]) -> Iterator[str]:
    ratios: dict[str, list[tuple[float, float]]] = {}
    yield "| pipeline | sizes | package | build of this size | ratio | onnxruntime | ratio |"
    yield "|---|---|---|---|---|---|---|"
    for subject in subjects:
        for sizes in subject.sizes:
            times = subject.times(sizes)
            if times is None:
                continue
            least = {name: f"{min(seconds) * 1e3:.3g} ms" for name, seconds in times.items()}
            fixed, competitor = _ratios(times, STATIC), _ratios(times, COMPETITOR)
            known = sizes in subject.likely
            kind = "likely" if known else "other"
            ratios.setdefault(f"at {kind} sizes, against a build of that size", []).append(fixed)
            ratios.setdefault("at all sizes, against onnxruntime", []).append(competitor)
            size_text = " x ".join(map(str, sizes.values())) + (", likely" if known else "")
            yield (
                f"| {subject.path.stem} | {size_text} | {least[OPEN]} | {least[STATIC]} "
                f"| {fixed[0]:.2f} | {least[COMPETITOR]} | {competitor[0]:.2f} |"
            )
    yield ""
    yield "| | geometric mean | worst | of medians | worst |"
    yield "|---|---|---|---|---|"
    for name, found in ratios.items():
        cells = (
            f"{statistics.geometric_mean(column):.2f} | {max(column):.2f}"
            for column in zip(*found, strict=True)
        )
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    yield from _tables_of_packages(subjects)


def _tables_of_packages(subjects: Sequence[Subject]) -> Iterator[str]:
    columns = "package", "of one size", "ratio", "kept tasks", "of one size", "calls", "memory"
    yield f"| pipeline | {' | '.join(columns)} | at most |"
    yield "|---" * (len(columns) + 2) + "|"
    yield from map(_sizes_row, subjects)
    yield ""
    yield "| pipeline, tuned | trials | of one size | likely sizes | build of this size | ratio |"
    yield "|---|---|---|---|---|---|"
    for subject in subjects:
        if subject.tuned.exists():
            found = json.loads(subject.tuned.read_text())
            trials, times = found["trials"], found["times"]
            least = [f"{min(times[name]) * 1e3:.3g} ms" for name in (OPEN, STATIC)]
            yield (
                f"| {subject.path.stem} | {trials[OPEN]} | {trials[STATIC]} "
                f"| {' | '.join(least)} | {_ratios(times, STATIC)[0]:.2f} |"
            )


def _sizes_row(subject: Subject) -> str:
    """Return a row about size, tasks and memory."""
    labels = [OPEN, _label(subject.likely[0])]
    folders = [subject.folder / label for label in labels]
    sizes = [_package(folder) for folder in folders]
    kept = [sum(t.dropped is None for t in read_tasks(folder / "tasks")) for folder in folders]
    calls, memory, most = "", "", ""
    if subject.memory.exists():
        held: list[int] = json.loads(subject.memory.read_text())
        calls, tenth = str(len(held)), max(len(held) // 10, 1)
        early, late = held[tenth : 2 * tenth] or held, held[-tenth:]
        memory = f"{_mib(statistics.median(early))}, at the end {_mib(statistics.median(late))}"
        half = len(held) // 2
        most = f"{_mib(max(held[:half] or held))}, then {_mib(max(held[half:]))}"
    return (
        f"| {subject.path.stem} | {_mib(sizes[0])} | {_mib(sizes[1])} | {sizes[0] / sizes[1]:.2f} "
        f"| {kept[0]} | {kept[1]} | {calls} | {memory} | {most} |"
    )


def _package(folder: Path) -> int:
    (package,) = (folder / "package").glob("*.tar")
    return package.stat().st_size


def _trials(tuned: Path) -> int:
    return sum(task.trials for task in TuningReport.read(tuned).tasks)


def _mib(count: float) -> str:
    return f"{count / 2**20:.1f} MiB"


def _ratios(times: Times, against: str) -> tuple[float, float]:
    """Return the ratio of least times, and that of medians."""
    ours, theirs = times[OPEN], times[against]
    return min(ours) / min(theirs), statistics.median(ours) / statistics.median(theirs)


def _label(sizes: Sizes) -> str:
    return "x".join(map(str, sizes.values()))


if __name__ == "__main__":
    main()
