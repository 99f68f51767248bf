"""Packages for every size: `python benchmarks/dynamic_sizes.py [PIPELINES]`.

A package with dynamic shapes against builds for one size, and against onnxruntime with its dynamic
dimensions: at likely sizes, where a library of its own runs, and at others, where the generic
one does. Then the size of the package and the number of its tasks, against those of a build for
the first likely sizes. Each contender runs in a process of its own, in turn. Ratios are of minimum
times, below 1 where the package is faster or smaller.

Builds and times are kept in a folder, so the work can be done in parts:
`dynamic_sizes.py build --folder F` builds only, `time --folder F --seconds 200` times what has no
times yet and begins no size after 200 seconds, `table --folder F` prints what is known.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import in_parts
import numpy as np
import yaml
from turns import compare_times, head_table, summarize_ratios, take_turns

import autopipe
from autopipe.artifacts.library import BuiltLibrary
from autopipe.benchmarking.at_sizes import choose_timed_sizes
from autopipe.benchmarking.contender import time_contender
from autopipe.config.benchmark import Benchmark
from autopipe.config.dimension import Dimension, Sizes, list_end_sizes, list_likely_sizes
from autopipe.config.load import load
from autopipe.config.paths import find_model_path
from autopipe.config.pipeline import Pipeline
from autopipe.tasks.task import read_tasks

PIPELINES: Final = tuple(
    Path("pipelines", f"{name}.yaml") for name in ("encoder", "finder", "recognizer", "sequences")
)
PARTS: Final = ("build", "time", "table")
ROUNDS: Final = 3
LIKELY: Final = 2
"""Most likely sizes of one package that are timed."""
OPEN, STATIC, COMPETITOR = "open", "static", "onnxruntime"

Times = dict[str, list[float]]
"""Seconds of each run by contender."""


def main() -> None:
    """Do the parts that are asked for."""
    parser = in_parts.parser(__doc__.partition("\n")[0], PARTS, ROUNDS)
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
        drawn = draw_sizes(dimensions, seed=1)
        others = [list_end_sizes(dimensions)[0], off, *choose_timed_sizes(dimensions), next(drawn)]
        found = {_label(sizes): sizes for sizes in others if sizes not in known}
        return [*self.likely, *found.values()]

    def build(self) -> None:
        """Build it with dynamic shapes, and for each size alone, if that is not done."""
        self._build_once(self.path, OPEN)
        for sizes in self.sizes:
            self._build_once(self.write_fixed(sizes), _label(sizes))

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

    def _build_once(self, path: Path, label: str) -> None:
        """Run a pipeline, if that is not done, and keep its artifacts."""
        if not (self.folder / label).exists():
            overrides = [*self.settings, "verify=null", "benchmark=null"]
            store, output = self.kept / "store", self.folder / "dist" / label
            artifacts = autopipe.run(path, store=store, output=output, overrides=overrides)
            in_parts.keep(self.folder / label, artifacts)

    def times(self, sizes: Sizes) -> Times | None:
        """Return the seconds of each run at certain sizes, or None if they were not timed."""
        path = self.folder / f"{_label(sizes)}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def time(self, sizes: Sizes, rounds: int) -> None:
        """Time all contenders in turn, and keep the times."""
        label = _label(sizes)
        inputs = self.folder / "inputs.safetensors"
        ports = BuiltLibrary.read(self.folder / OPEN / "build").signature.at(sizes)
        in_parts.write_inputs(ports, (self.folder / OPEN / "import").resolve(), inputs)
        subjects = {
            OPEN: ("autopipe", self.folder / OPEN / "build"),
            STATIC: ("autopipe", self.folder / label / "build"),
            COMPETITOR: ("onnxruntime", self.folder / OPEN / "import" / "reference.onnx"),
        }
        contenders = {
            name: partial(time_contender, runtime, path.resolve(), inputs, Benchmark())
            for name, (runtime, path) in subjects.items()
        }
        times = {
            name: [seconds for timed in timings for seconds in timed.seconds]
            for name, timings in take_turns(contenders, rounds).items()
        }
        (self.folder / f"{label}.json").write_text(json.dumps(times), encoding="utf-8")


def draw_sizes(dimensions: dict[str, Dimension], seed: int) -> Iterator[Sizes]:
    """Yield random sizes without end; small ones are as frequent as large ones."""
    generator = np.random.default_rng(seed)
    while True:
        yield {
            name: min(
                int(one.first * (one.last / one.first + 1e-9) ** generator.uniform())
                // one.multiple * one.multiple + one.multiple * int(generator.integers(2)),
                one.last,
            )
            for name, one in dimensions.items()
        }  # fmt: skip


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
    """Yield a table of all sizes, their means, and a table of the packages."""
    ratios: dict[str, list[tuple[float, float]]] = {}
    columns = "pipeline", "sizes", "package", "build of this size", "ratio", COMPETITOR, "ratio"
    yield head_table(*columns)
    for subject in subjects:
        for sizes in subject.sizes:
            times = subject.times(sizes)
            if times is None:
                continue
            cells = {name: f"{min(seconds) * 1e3:.3g} ms" for name, seconds in times.items()}
            fixed, competitor = (compare_times(times[OPEN], times[o]) for o in (STATIC, COMPETITOR))
            is_likely = sizes in subject.likely
            kind = "likely" if is_likely else "other"
            ratios.setdefault(f"at {kind} sizes, against a build of that size", []).append(fixed)
            ratios.setdefault("at all sizes, against onnxruntime", []).append(competitor)
            size_text = " x ".join(map(str, sizes.values())) + (", likely" if is_likely else "")
            yield (
                f"| {subject.path.stem} | {size_text} | {cells[OPEN]} | {cells[STATIC]} "
                f"| {fixed[0]:.2f} | {cells[COMPETITOR]} | {competitor[0]:.2f} |"
            )
    yield "\n" + head_table("", "geometric mean, worst", "of medians")
    for name, pairs in ratios.items():
        yield f"| {name} | {' | '.join(summarize_ratios(pairs))} |"
    yield "\n" + head_table("pipeline", "package", "of one size", "ratio", "tasks", "of one size")
    yield from map(_row, subjects)


def _row(subject: Subject) -> str:
    """Return a row about the size and the tasks of a package."""
    folders = [subject.folder / label for label in (OPEN, _label(subject.likely[0]))]
    packages = [next((folder / "package").glob("*.tar")).stat().st_size for folder in folders]
    tasks = [sum(t.dropped is None for t in read_tasks(folder / "tasks")) for folder in folders]
    mebibytes = " | ".join(f"{size / 2**20:.1f} MiB" for size in packages)
    ratio = packages[0] / packages[1]
    return f"| {subject.path.stem} | {mebibytes} | {ratio:.2f} | {tasks[0]} | {tasks[1]} |"


def _label(sizes: Sizes) -> str:
    return "x".join(map(str, sizes.values()))


if __name__ == "__main__":
    main()
