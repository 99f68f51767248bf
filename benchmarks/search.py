"""Whether searches keep a farm busy, and find as much there: `python benchmarks/search.py`.

Convolutions of ResNet-50 are tuned by one engine, with the loop and the processes of stage *tune*.
Nothing is compiled, and nothing timed: that makes many workers out of one machine.

`--show rate` says how many schedules a second are proposed and learned, with one process and with
one a core; their times come at once. `--show quality` has the same number of trials measured by one
worker and by 16 of 2 cores. The time of a schedule is then a fixed function of its features (of
those that TVM takes of a program), the same for all: what differs is how much is in flight while
the next batch is proposed. *blind* is the same search, with one time reported for all.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
from machine import target, workloads

import autopipe
from autopipe.config.schedules import Rule
from autopipe.config.tuning import Budget
from autopipe.measure.measurement import Measurement, Repeatable
from autopipe.records.record import Platform
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.engine import Problem
from autopipe.schedules.engines.knobs.features import list_knob_values
from autopipe.schedules.engines.knobs.space import Space
from autopipe.schedules.engines.registry import load_engine_makers
from autopipe.schedules.policy import Contender
from autopipe.schedules.templates.serve import serve
from autopipe.tasks.task import Task
from autopipe.tuning.bandit import Arm, Bandit
from autopipe.tuning.journal import Journal
from autopipe.tuning.search.loop import TuningLoop, choose_batch_size
from autopipe.tuning.search.scheduler import choose_by_gradient
from autopipe.tuning.search.searcher import Searcher, make_search_key
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials

PIPELINE: Final = Path(__file__).parents[1] / "pipelines" / "resnet50.yaml"

BATCH: Final = 32
"""`tuning.batch`, as it is by default."""

SLOTS: Final = 4
"""Candidates that a worker of 2 cores takes at a time."""


class Landscape:
    """The time of each schedule: a fixed, smooth function of the features of its program."""

    def __init__(self, conditions: Conditions) -> None:
        """Draw the function; it is the same for every run."""
        from tvm.s_tir import meta_schedule as ms

        self._extractor = ms.feature_extractor.PerStoreFeature()
        self._conditions = conditions
        self._weights: list[Any] = []
        self._contexts: dict[str, Any] = {}

    def seconds(self, candidate: Repeatable) -> float:
        """Return how long a schedule takes: 0.05 to 20 ms."""
        from tvm.s_tir import Schedule
        from tvm.s_tir import meta_schedule as ms

        assert candidate.workload is not None  # noqa: S101 -- `Trials` says it of each
        if candidate.task not in self._contexts:
            self._contexts[candidate.task] = ms.TuneContext(
                candidate.workload, target=self._conditions.target, num_threads=1
            )
        context = self._contexts[candidate.task]
        schedule = Schedule(candidate.make(), debug_mask="none")
        arguments = ms.arg_info.ArgInfo.from_prim_func(candidate.workload["main"])
        (found,) = self._extractor.extract_from(context, [ms.MeasureCandidate(schedule, arguments)])
        return _time(self._height(found.numpy()))

    def _height(self, stores: Any) -> float:  # noqa: ANN401 -- a matrix, a row for each store
        if not self._weights:
            self._weights = _drawn(stores.shape[1], 12)
        hidden = np.tanh((stores @ self._weights[0]).sum(axis=0))
        return float(hidden @ self._weights[1])


class KnobLandscape:
    """The same for settings of templates, by their knobs: of some, TVM cannot take features."""

    def __init__(self, conditions: Conditions, seed: int) -> None:
        """Take the seed that spaces are drawn with; the function is the same for every run."""
        self._conditions, self._seed = conditions, seed
        self._heights: dict[str, dict[str, float]] = {}

    def seconds(self, candidate: Repeatable) -> float:
        """Return how long a schedule takes: 0.05 to 20 ms."""
        if candidate.task not in self._heights:
            self._heights[candidate.task] = self._over(candidate.workload)
        return _time(self._heights[candidate.task][candidate.schedule])

    def _over(self, module: Any) -> dict[str, float]:  # noqa: ANN401 -- TVM is not typed
        served = serve(module, self._conditions.hardware)
        assert served is not None  # noqa: S101 -- a setting of it was proposed
        space = Space.of(served, self._conditions.hardware, self._seed)
        rows = np.log2(1 + np.abs(np.stack(list(list_knob_values(space).values()), axis=1)))
        into, out = _drawn(rows.shape[1], 2 * math.sqrt(rows.shape[1]))
        heights = np.tanh((rows - rows[0]) @ into) @ out
        return {space.document(n): float(height) for n, height in enumerate(heights)}


def _time(height: float) -> float:
    return 1e-3 * math.exp(3.0 * math.tanh(height))


def _drawn(size: int, scale: float) -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.normal(size=(size, 24)) / scale, rng.normal(size=24) / 5]


class Simulated:
    """Workers that measure nothing."""

    def __init__(self, width: int, seconds: Callable[[Repeatable], float]) -> None:
        """Take how many candidates are in their hands at a time."""
        self.width = width
        self._seconds = seconds

    def measure(
        self, candidates: Sequence[Repeatable], best: float = math.inf, *, same_task: bool = True,
        until: float = math.inf,
    ) -> Generator[tuple[int, Measurement]]:  # fmt: skip
        """Yield the times; nothing waits for them."""
        del best, same_task, until
        for place, candidate in enumerate(candidates):
            yield place, Measurement((self._seconds(candidate),))


def tuned(tasks: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Tune once, as the options say; return the best times, and how long it took."""
    conditions = Conditions.of(target(), fast_algorithms=True)
    by = Contender(options.engine, "direct")
    states = [_state(*found, by) for found in _some(tasks, options.tasks)]
    landscape = (
        Landscape(conditions) if by.engine == "ansor" else KnobLandscape(conditions, options.seed)
    )
    seen: dict[str, float] = {}

    def seconds(candidate: Repeatable) -> float:
        if options.show == "rate":
            return 1e-3 * (1 + (hash(candidate.schedule) & 0xFFFF) / 0xFFFF)
        true = landscape.seconds(candidate)
        seen[candidate.task] = min(true, seen.get(candidate.task, math.inf))
        return 1e-3 if options.blind else true

    many, width = options.processes, options.workers * SLOTS if options.workers > 1 else 1
    batch = choose_batch_size(options.trials, len(states), BATCH)
    problems = {
        make_search_key(state, by): Problem(
            state.task, state.module, conditions, (), batch, options.seed,
            threads=1 if many > 1 or options.show == "quality" else None,
        )
        for state in states
    }  # fmt: skip
    with (
        tempfile.TemporaryDirectory() as folder,
        RecordStore.open(Path(folder) / "records.sqlite", sys.exit) as store,
    ):
        journal = Journal(store, Platform("target", "", ""), Session.resume(Path(folder)))
        searcher = Searcher(
            load_engine_makers([by.engine], conditions), problems,
            lambda state, by: journal.known(state, by.implementation), process_count=many,
        )  # fmt: skip
        trials = Trials(
            states, Budget(trials=options.trials), journal,
            Simulated(width, seconds),
            conditions, lambda: None,
        )  # fmt: skip
        start = perf_counter()
        TuningLoop(trials, choose_by_gradient, batch, searcher, _failed).run()
        spent = perf_counter() - start
        searcher.close()
    count = sum(state.trials for state in states)
    return {"best": seen, "rate": count / spent, "trials": count}


def _failed(state: TaskState, by: Contender, error: Exception) -> None:
    sys.exit(f"{state.task.name}: the search of {by.engine} failed: {error}")


def _some(tasks: Path, count: int) -> list[tuple[Task, Any]]:
    every = [(t, m) for t, m in workloads(tasks) if t.dropped is None]
    every = [(t, m) for t, m in every if "nn.conv2d" in t.info.names]
    return every[:: max(1, len(every) // count)][:count]


def _state(task: Task, module: Any, by: Contender) -> TaskState:  # noqa: ANN401 -- TVM
    from autopipe.compiler.labels.op_info import annotate_workload

    bandit = Bandit(Rule(engines=(by.engine,)), 0, {by: Arm()})
    return TaskState(task, "{}", annotate_workload(module, task.info), {}, bandit, task.share)


def _run(tasks: Path, options: argparse.Namespace, **more: object) -> dict[str, Any]:
    """Tune in a process of its own."""
    chosen = {**vars(options), **more}
    names = ("show", "engine", "trials", "seed", "workers", "processes")
    arguments = [f"--{name}={chosen[name]}" for name in names]
    found = subprocess.run(
        [sys.executable, __file__, "--artifact", tasks, f"--tasks={options.tasks}", "--one",
         *arguments, *(["--blind"] if more.get("blind") else [])],
        stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def _rates(tasks: Path, options: argparse.Namespace) -> None:
    for many in (1, options.processes):
        found = _run(tasks, options, processes=many)
        print(
            f"{options.engine}, {many} processes: {found['trials']} trials,"
            f" {found['rate']:.1f} a second", flush=True,
        )  # fmt: skip


def _qualities(tasks: Path, options: argparse.Namespace) -> None:
    """Print the minimum times against those that one worker has found, each seed by itself."""
    wanted: dict[str, dict[str, Any]] = {
        f"{options.workers} workers": {}, "blind": {"workers": 1, "processes": 1, "blind": True},
    }  # fmt: skip
    ratios: dict[str, list[float]] = {name: [] for name in wanted}
    for seed in range(options.seed, options.seed + options.seeds):
        one = _run(tasks, options, workers=1, processes=1, seed=seed)["best"]
        for name, more in wanted.items():
            found = _run(tasks, options, seed=seed, **more)["best"]
            logs = [math.log(found[task] / one[task]) for task in one]
            ratios[name].append(math.exp(sum(logs) / len(logs)))
            print(f"seed {seed}, {name}: {ratios[name][-1]:.3f} of the time of one", flush=True)
    for name, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"{options.engine}, {name}: {mean:.3f}, from {min(found):.3f} to {max(found):.3f}")


def main() -> None:
    """Compare, or be one of the contenders."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--show", choices=("rate", "quality"), default="rate")
    parser.add_argument("--engine", default="ansor")
    for name, default in (("trials", 384), ("tasks", 6), ("seed", 0), ("seeds", 5),
                          ("workers", 16), ("processes", 2)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--artifact", type=Path, help="an artifact of the stage `tasks`")
    for name in ("--one", "--blind"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(tuned(options.artifact, options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        tasks = options.artifact
        if tasks is None:
            tasks = autopipe.run(PIPELINE, store=Path(folder), until="tasks")["tasks"].path
        (_rates if options.show == "rate" else _qualities)(tasks, options)


if __name__ == "__main__":
    main()
