"""What a search could find: `python benchmarks/headroom.py PIPELINES`.

The heaviest tasks of each pipeline get many schedules: the static choice, which an untuned build
has, those of other implementations, each on one thread, the settings that templates promise most
of, and some at random. All of them are timed inside the built model (ADR 0052). The first half of
the rounds chooses, the second half judges, so that nobody wins by luck. Then the model is built
with the static choices and with the chosen ones, and both run in turn as packages do.

`--settings 15` are tried of each template, `--tasks 8` are the heaviest, `--seconds 100` are for
the rounds. Models with open sizes have no such clock.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import machine
import tvm
import tvm_ffi
from clocks import EVERY

import autopipe
from autopipe.artifacts.lowering import WHOLE
from autopipe.benchmarking.interval import paired
from autopipe.compiler import module_io
from autopipe.compiler.labels.op_info import described
from autopipe.measure.in_model import InModel, ModelSource, Place
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import fallback, static
from autopipe.schedules.engines.autotvm import AutoTVM
from autopipe.schedules.engines.engine import Problem
from autopipe.schedules.implementations.implementation import implementations
from autopipe.schedules.one_thread import without_threads
from autopipe.schedules.replay import replay
from autopipe.tasks.task import Task

SURE: Final = 0.99
CHAIN: Final = ("static", "default", "none")
MOST: Final = 21
"""Rounds of packages."""


def main() -> None:
    """Print a table of each pipeline that is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pipelines", nargs="+", type=Path)
    parser.add_argument("--settings", type=int, default=15, help="of each template, at most")
    parser.add_argument("--tasks", type=int, default=8, help="the heaviest ones")
    parser.add_argument("--seconds", type=float, default=100.0, help="for the rounds of a model")
    parser.add_argument("--store", type=Path, help="keeps what is imported; else nothing is kept")
    options = parser.parse_args()
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        for path in options.pipelines:
            model = _model(path, options.store or Path(scratch))
            print("\n".join(model.table(options.settings, options.tasks, options.seconds)))


@dataclass
class Tried:
    """A task and what was tried for it, the static choice first."""

    task: Task
    names: list[str]
    modules: list[tvm.IRModule]


@dataclass
class Model:
    """A model, and the schedules of its tasks."""

    name: str
    lowered: tvm.IRModule
    tasks: Sequence[tuple[Task, tvm.IRModule]]
    conditions: Conditions
    seconds: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """Of all calls of a task, by workload and rank."""

    def table(self, settings: int, count: int, seconds: float) -> Iterator[str]:
        """Try schedules and yield what came of it, as Markdown."""
        chosen = {task.workload: self._static(module) for task, module in self.tasks}
        heavy = self._heaviest(chosen, count)
        tried = [
            _tried(task, module, chosen[task.workload], self.conditions, settings)
            for task, module in self.tasks
            if task.workload in heavy
        ]
        with InModel(self._source(chosen, tried), lambda: 600.0) as model:
            model.build({})
            for one in tried:
                for rank in range(len(one.modules) if len(one.modules) > 1 else 0):
                    model.add(rank, one.task.functions)
            best = self._best(model, tried, seconds * 0.7)
            yield f"\n{self.name}: microseconds of all calls inside the model\n"
            yield "| task | calls | tried | static | best | best / static | by |"
            yield "|---|---|---|---|---|---|---|"
            for one in sorted(tried, key=lambda one: -self._judged(one, 0)):
                yield self._row(one, best[one.task.workload])
            yield self._raced(model, tried, best, seconds * 0.3)

    def _static(self, module: tvm.IRModule) -> tvm.IRModule:
        found = fallback.fall(CHAIN, module, self.conditions).planned
        return found.module if found else module

    def _source(self, chosen: Mapping[str, tvm.IRModule], tried: Sequence[Tried]) -> ModelSource:
        bodies: dict[str, Sequence[tvm.IRModule]] = {
            name: (chosen[task.workload],) for task, _ in self.tasks for name in task.functions
        }
        bodies |= {name: tuple(one.modules) for one in tried for name in one.task.functions}
        return ModelSource(
            self.lowered, bodies, self.conditions.target, self.conditions.hardware.cores
        )

    def _heaviest(self, chosen: Mapping[str, tvm.IRModule], count: int) -> set[str]:
        """Return the workloads of the tasks that take most of the time."""
        with InModel(self._source(chosen, ()), lambda: 600.0) as model:
            model.build({})
            rounds = [model.round([{}])[0] for _ in range(5)]
        times = {
            task.workload: median(sum(each.get(n, 0.0) for n in task.functions) for each in rounds)
            for task, _ in self.tasks
        }
        return set(sorted(times, key=lambda name: -times[name])[:count])

    def _best(self, model: InModel, tried: Sequence[Tried], seconds: float) -> dict[str, int]:
        """Run all ranks round by round; return who was fastest in the first half."""
        ranks = max(len(one.modules) for one in tried)
        places = [_place(tried, dict.fromkeys(_workloads(tried), rank)) for rank in range(ranks)]
        end, turn = time.monotonic() + seconds, 0
        while time.monotonic() < end or turn < 6:  # noqa: PLR2004 - three rounds a half
            order = places if turn % 2 else places[::-1]
            kernels = model.round(order)
            for place, found in zip(
                range(ranks), kernels if turn % 2 else kernels[::-1], strict=True
            ):
                for one in tried:
                    if place < len(one.modules):
                        total = sum(found.get(name, 0.0) for name in one.task.functions)
                        self.seconds.setdefault((one.task.workload, place), []).append(total)
            turn += 1
        return {
            one.task.workload: min(
                range(len(one.modules)), key=lambda rank: self._half(one, rank, 0)
            )
            for one in tried
        }

    def _half(self, one: Tried, rank: int, half: int) -> float:
        times = self.seconds[one.task.workload, rank]
        middle = len(times) // 2
        return median(times[middle:] if half else times[:middle])

    def _judged(self, one: Tried, rank: int) -> float:
        return self._half(one, rank, 1)

    def _row(self, one: Tried, best: int) -> str:
        held, found = (self._judged(one, rank) * 1e6 for rank in (0, best))
        by = one.names[best] if best else ""
        return (
            f"| {one.task.name} | {one.task.calls} | {len(one.modules)} | {held:.0f} | {found:.0f} "
            f"| {found / held:.2f} | {by} |"
        )

    def _raced(
        self, model: InModel, tried: Sequence[Tried], best: Mapping[str, int], seconds: float
    ) -> str:
        """Build the model with who was judged faster; run it in turn with the static choices."""
        faster = {
            name: rank
            for one in tried
            if (name := one.task.workload)
            and (rank := best[name])
            and self._judged(one, rank) < 0.99 * self._judged(one, 0)
        }
        totals = [
            sum(self._judged(one, ranks.get(one.task.workload, 0)) for one in tried)
            for ranks in ({}, faster)
        ]
        places: list[Place] = [{}, _place(tried, faster)]
        for place in places:
            model.link(place)
        rounds: list[Sequence[float]] = []
        end = time.monotonic() + seconds
        while len(rounds) < MOST and (time.monotonic() < end or len(rounds) < 3):  # noqa: PLR2004
            step = 1 if len(rounds) % 2 else -1
            rounds.append(model.whole(places[::step])[::step])
        old, new = zip(*rounds, strict=True)
        ratio = paired(new, old, SURE) or median(b / a for a, b in rounds)
        return (
            f"| **all of these** | | | {totals[0] * 1e6:.0f} | {totals[1] * 1e6:.0f} | "
            f"{totals[1] / totals[0]:.2f} | |\n\nAs packages, {len(rounds)} processes each: "
            f"{median(old) * 1e3:.3g} ms static, {median(new) * 1e3:.3g} ms with the best, {ratio}"
        )


def _place(tried: Sequence[Tried], ranks: Mapping[str, int]) -> dict[str, int]:
    return {
        name: rank
        for one in tried
        if 0 < (rank := ranks.get(one.task.workload, 0)) < len(one.modules)
        for name in one.task.functions
    }


def _workloads(tried: Sequence[Tried]) -> list[str]:
    return [one.task.workload for one in tried]


def _tried(
    task: Task, module: tvm.IRModule, held: tvm.IRModule, conditions: Conditions, count: int
) -> Tried:
    """Return the static choice of a task, and what is tried in its place."""
    found = Tried(task, ["static"], [held])

    def add(name: str, made: tvm.IRModule | None) -> None:
        if made is not None and not any(
            tvm_ffi.structural_equal(made["main"], one["main"]) for one in found.modules
        ):
            found.names.append(name)
            found.modules.append(made)

    for planned in static.plans(module, conditions):
        add(planned.implementation, planned.module)
        add(f"{planned.implementation}, one thread", without_threads(planned.module))
    engine = AutoTVM(conditions)
    for name, body in implementations(module, conditions).items():
        search = engine.search(Problem(task, body, conditions, (), count, seed=0))
        for document in search.propose(count) if search else ():
            scheduled = replay(module, name, document, conditions)
            knobs = {k: v for k, v in json.loads(document).items() if k != "template"}
            add(f"{name} {json.dumps(knobs)}".replace('"', ""), scheduled)
    return found


def _model(path: Path, store: Path) -> Model:
    found = autopipe.run(path, store=store, output=store / "dist",
                         overrides=[*EVERY, "tuning=null"])  # fmt: skip
    lowered = module_io.load_module(found["lower"].path / WHOLE)
    conditions = Conditions.of(machine.target(), fast_algorithms=True)
    tasks = [
        (task, described(module, task.info))
        for task, module in machine.workloads(found["tasks"].path)
    ]
    return Model(path.stem, lowered, tasks, conditions)


if __name__ == "__main__":
    main()
