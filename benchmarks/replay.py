"""After how many trials a search is near the best: `python benchmarks/replay.py STORE PIPELINES`.

Nothing is compiled, and nothing timed: the search of each model is replayed on times that are in
the records of a store. `autopipe run PIPELINE --store STORE --until tune --no-lock --set
tuning.tuner=random --set 'schedules.rules=[{engines: [autotvm]}]'` writes such times of settings
that no cost model has chosen; give each model a quiet machine and a minute or two.

The loop of stage *tune* gives trials to the tasks, and engine `autotvm` proposes among the settings
that have a time. A row says how much the filled settings take above the best that is known, and
after how many trials the sum of all kernels was within so many percent of it. `--against CHECKOUT`
replays the search of another commit, too.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final
from unittest import mock

import tvm
from machine import target
from turns import ROOT, add_against, head_table, import_from

import autopipe
from autopipe.config.schedules import Rule
from autopipe.config.tuning import Budget
from autopipe.measure.measurement import Measurement, Repeatable
from autopipe.records.record import REPEAT_SUFFIX, Platform
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.autotvm import AutoTVM, KnobSearch
from autopipe.schedules.engines.engine import Problem
from autopipe.schedules.engines.knobs.cost_model import CostModel
from autopipe.schedules.engines.knobs.features import compute_features
from autopipe.schedules.engines.knobs.space import Space
from autopipe.schedules.implementations.implementation import build_implementation
from autopipe.schedules.policy import Contender
from autopipe.schedules.templates.serve import serve
from autopipe.tasks.weights import count_weight_bytes
from autopipe.tuning.bandit import Arm, Bandit
from autopipe.tuning.clock import estimate_touched_bytes, name_clock
from autopipe.tuning.journal import Journal
from autopipe.tuning.search import loop
from autopipe.tuning.search.concurrent_runs import ConcurrentRuns
from autopipe.tuning.search.first_round import measure_starts
from autopipe.tuning.search.scheduler import choose_by_gradient
from autopipe.tuning.search.searcher import Searcher, make_search_key
from autopipe.tuning.setup import ModelTasks
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials

MARGINS: Final = (20, 10, 5, 2)
"""Percent above the best time that is known."""

PACE: Final = 0.15
"""Assumed seconds of a trial: budget allocation goes by the gain of a second."""

BATCH: Final = 32
"""`tuning.batch`, as it is by default."""

Times = Mapping[str, float]
"""Seconds of one call, by setting."""


class Replayed(AutoTVM):
    """Template search among the settings that have a time."""

    times: ClassVar[Mapping[int, Times]]
    """By the address of the module: a fork keeps it."""
    lessons: ClassVar[Sequence[tuple[tvm.IRModule, Times]]] = ()
    """Functions of other models, and times of their settings."""

    def __init__(self, conditions: Conditions) -> None:
        """Train the cost models of all templates on what is known of other models."""
        super().__init__(conditions)
        for module, times in self.lessons:
            space = self._list_timed(module, times, 0)
            if space is not None:
                model = self._models.setdefault(space.served.template.name, CostModel())
                seconds = {n: times[space.document(n)] for n in range(len(space.settings))}
                model.learn(model.join(compute_features(space)), seconds)

    def search(self, problem: Problem) -> KnobSearch | None:
        """Begin a search of the settings that have a time."""
        space = self._list_timed(problem.module, self.times[id(problem.module)], problem.seed)
        if space is None:
            return None
        return KnobSearch(space, self._tuner(space, problem), problem.known)

    def _list_timed(self, module: tvm.IRModule, times: Times, seed: int) -> Space | None:
        served = serve(module, self._hardware)
        if served is None:
            return None
        space = Space.of(served, self._hardware, seed)
        timed = [k for n, k in enumerate(space.settings) if space.document(n) in times]
        return replace(space, settings=timed) if timed else None


class Simulated:
    """A runner that measures nothing."""

    width = 1
    """Candidates in flight."""

    def __init__(self, seconds: Callable[[Repeatable], float]) -> None:
        """Take the function that tells the time of a candidate."""
        self._seconds = seconds

    def measure(
        self, candidates: Sequence[Repeatable], best: float = math.inf, *, same_task: bool = True,
        until: float = math.inf,
    ) -> Generator[tuple[int, Measurement]]:  # fmt: skip
        """Yield the times at once."""
        del best, same_task, until
        for place, candidate in enumerate(candidates):
            yield place, Measurement((self._seconds(candidate),))


def read_times(store: Path, clock: str | None) -> dict[tuple[str, str], dict[str, float]]:
    """Return the steady times of settings by a clock, by workload and implementation."""
    times: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    with RecordStore.view(store / "records" / "records.sqlite") as records:
        rows = records.every("records.here AND engine IN ('static', 'autotvm')")
    for row in rows:
        steady = not row.record.unsteady and not row.record.session.endswith(REPEAT_SUFFIX)
        if steady and json.loads(row.platform.device).get("clock") == clock:
            known = times[row.record.workload, row.record.implementation]
            known.setdefault(row.record.schedule, row.record.median)
    return times


@dataclass(frozen=True, slots=True)
class TimedModel:
    """The functions of a model that have times, by task and implementation."""

    tasks: ModelTasks
    conditions: Conditions
    modules: Mapping[tuple[str, str], tvm.IRModule]
    times: Mapping[tuple[str, str], Times]

    @classmethod
    def read(cls, path: Path, store: Path) -> "TimedModel":
        """Read a model and its times from a store."""
        tasks = ModelTasks.read(autopipe.run(path, store=store, until="tasks")["tasks"].path, None)
        every = read_times(store, name_clock(estimate_touched_bytes(tasks.every)))
        conditions = Conditions.of(target(), fast_algorithms=True)
        conditions = conditions.within(count_weight_bytes(tasks.every))
        modules, times = {}, {}
        for task in tasks.tuned:
            for (workload, name), known in every.items():
                if workload != task.workload or len(known) == 1 or min(known.values()) == math.inf:
                    continue
                module = build_implementation(tasks.modules[task.name], name, conditions)
                if module is not None:
                    modules[task.name, name], times[task.name, name] = module, known
        return cls(tasks, conditions, modules, times)

    def list_states(self) -> list[TaskState]:
        """Return the tasks that have times, with nothing measured."""
        states = []
        for task in self.tasks.tuned:
            own = {name: known for (of, name), known in self.times.items() if of == task.name}
            arms = {Contender("autotvm", name): Arm() for name in own}
            starts = {Contender("static", name): next(iter(known)) for name, known in own.items()}
            bandit = Bandit(Rule(engines=("autotvm",)), 0, arms)
            text, module = self.tasks.texts[task.name], self.tasks.modules[task.name]
            states += [TaskState(task, text, module, starts, bandit, task.share)] if own else []
        return states

    def list_lessons(self, known: Collection[str]) -> list[tuple[tvm.IRModule, Times]]:
        """Return functions and times, but for the workloads that are `known`."""
        workloads = {task.name: task.workload for task in self.tasks.tuned}
        return [
            (m, self.times[at]) for at, m in self.modules.items() if workloads[at[0]] not in known
        ]


def replay(path: Path, others: Sequence[Path], store: Path) -> dict[str, Any]:
    """Replay the search of one model; return the sum of its best times after each trial.

    Its cost models begin with what is known of `others`.
    """
    model = TimedModel.read(path, store)
    own = {task.workload for task in model.tasks.tuned}
    Replayed.lessons = [
        lesson for other in others for lesson in TimedModel.read(other, store).list_lessons(own)
    ]
    Replayed.times = {id(module): model.times[at] for at, module in model.modules.items()}
    return follow_search(model, model.list_states())


def follow_search(model: TimedModel, states: Sequence[TaskState]) -> dict[str, Any]:
    """Run the search; return the sum of the best times after each trial, over the best known."""
    times = model.times
    problems = {
        make_search_key(state, by): Problem(
            state.task, model.modules[state.task.name, by.implementation], model.conditions, (),
            BATCH, 0,
        )
        for state in states
        for by in state.bandit.arms
    }  # fmt: skip
    calls = {state.task.name: state.task.calls for state in states}
    least = {
        name: min(min(t.values()) for key, t in times.items() if key[0] == name) for name in calls
    }
    best = dict.fromkeys(calls, math.inf)
    curve: list[float] = []

    def seconds(candidate: Repeatable) -> float:
        name = candidate.task
        time = times[name, candidate.implementation][candidate.schedule]
        best[name] = min(best[name], time)
        curve.append(sum(calls[each] * best[each] for each in calls))
        return time

    count = sum(map(len, times.values()))
    with (
        tempfile.TemporaryDirectory() as folder,
        RecordStore.open(Path(folder) / "records.sqlite", sys.exit) as store,
        mock.patch.object(loop, "monotonic", side_effect=lambda: PACE * len(curve)),
    ):
        journal = Journal(store, Platform("target", "", ""), Session.resume(Path(folder)))
        searcher = Searcher(
            {"autotvm": lambda: Replayed(model.conditions)}, problems, ConcurrentRuns(journal).known
        )
        trials = Trials(
            states,
            Budget(trials=2 * count),
            journal,
            Simulated(seconds),
            model.conditions,
            lambda: None,
        )
        measure_starts(trials)
        filled = curve[-1]
        batch = loop.choose_batch_size(2000, len(states), BATCH)
        loop.TuningLoop(trials, choose_by_gradient, batch, searcher, fail).run()
        searcher.close()
    goal = sum(calls[name] * least[name] for name in calls)
    return {"settings": count, "filled": filled / goal,
            "curve": [time / goal for time in curve]}  # fmt: skip


def fail(state: TaskState, by: Contender, error: Exception) -> None:
    """End the replay."""
    sys.exit(f"{state.task.name}: the search of {by.engine} failed: {error}")


def main() -> None:
    """Replay all pipelines, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("pipelines", nargs="+", type=Path)
    add_against(parser)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--records", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        others = [path for path in options.pipelines if path.stem != options.one]
        (path,) = set(options.pipelines) - set(others)
        print(json.dumps(replay(path, others if options.records else (), options.store)))
        return
    print(head_table("pipeline", "", "settings", "filled", *(f"{m} %" for m in MARGINS)))
    runs = [("before", options.against, False), ("now", ROOT, False), ("records", ROOT, True)]
    for path in options.pipelines:
        for name, root, records in runs:
            if root is not None:
                print_row(name, replay_apart(path, root, options, records=records), path.stem)


def replay_apart(
    path: Path, root: Path, options: argparse.Namespace, *, records: bool
) -> dict[str, Any]:
    """Replay the search of the checkout at `root` in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, options.store, *options.pipelines, f"--one={path.stem}",
         *(["--records"] if records else [])],
        check=True, text=True, stdout=subprocess.PIPE,
        env=import_from(root),
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def print_row(name: str, found: Mapping[str, Any], pipeline: str) -> None:
    """Print after how many trials the kernels were within each margin."""
    limits = [1 + margin / 100 for margin in MARGINS]
    curve = list(enumerate(found["curve"], 1))
    reached = [next((str(n) for n, over in curve if over <= limit), "-") for limit in limits]
    cells = [pipeline, name, str(found["settings"]), f"{found['filled']:.2f}", *reached]
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
