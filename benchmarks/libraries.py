"""Where a library beats generated code: `python benchmarks/libraries.py --trials 32`.

For each shape the time of the library's call, and the best time of the templates: filled from
hardware parameters, then searched for so many trials. Both are measured as tuning does, on the
threads of the model, with what follows the product in the same function; weights may be packed by
templates, as in a model. A win or a loss is one by more than `EVEN`.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from machine import target
from tvm import relax

from autopipe.compiler import lowering
from autopipe.compiler.labels.op_info import described
from autopipe.compiler.tasks import extract_tasks
from autopipe.config.tuning import Measure
from autopipe.libraries import LIBRARIES, versions
from autopipe.measure.local import Local
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.autotvm import AutoTVM
from autopipe.schedules.engines.engine import MeasuredSchedule, Problem
from autopipe.schedules.engines.static import plans
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.schedules.replay import replay
from autopipe.tasks.task import Task

EVEN: Final = 0.03
BATCH: Final = 16
"""Trials at a time."""


@dataclass(frozen=True, slots=True)
class Case:
    """A product, and what is around it."""

    m: int
    n: int
    k: int
    batch: int = 1
    weight: bool = True
    """Whether the second operand is a weight, so that templates may pack it."""
    after: bool = False
    """Whether a bias is added and negative values are cut off."""

    def __str__(self) -> str:
        """Name it."""
        batch = f"{self.batch} x " if self.batch > 1 else ""
        notes = [*(["weight"] if self.weight else []), *(["bias, relu"] if self.after else [])]
        return f"{batch}{self.m}x{self.k} {self.k}x{self.n} {', '.join(notes)}"


CASES: Final = (
    *(Case(size, size, size, weight=False) for size in (128, 256, 512, 1024, 2048)),
    *(Case(rows, 768, 768, after=True) for rows in (1, 8, 32, 128, 512)),
    Case(128, 3072, 768, after=True), Case(128, 768, 3072, after=True),
    Case(1, 1000, 2048), Case(64, 1000, 2048), Case(3136, 64, 64, after=True),
    Case(784, 512, 128, after=True), Case(196, 1024, 256, after=True),
    Case(64, 4096, 4096), Case(4096, 64, 4096), Case(64, 64, 16384, weight=False),
    Case(128, 128, 64, batch=12, weight=False), Case(128, 64, 128, batch=12, weight=False),
    Case(512, 512, 64, batch=16, weight=False), Case(33, 65, 1000, batch=7, weight=False),
)  # fmt: skip


def main() -> None:
    """Measure all shapes and print who is faster."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=32, help="trials of the templates")
    parser.add_argument("--only", type=int, default=len(CASES), help="so many of the shapes")
    options = parser.parse_args()
    conditions = Conditions.of(target(), fast_algorithms=True)
    measurer = Local(conditions.target, conditions.hardware.cores, Measure())
    names = [library.name for library in LIBRARIES if library.name in versions()]
    print(", ".join(f"{name} {version}" for name, version in versions().items()) or "no library")
    print(f"GFLOPS on {conditions.hardware.cores} threads; ratio: times as fast as generated code")
    print(f"{'product':<40} {'static':>7} {'tuned':>7} {'library':>8} {'ratio':>6}")
    tally = {"wins": 0, "loses": 0, "even": 0, "not taken": 0}
    for case in CASES[: options.only]:
        static, tuned, library = _times(case, conditions, measurer, options.trials, names)
        ratio = min(static, tuned) / library
        outcome = "wins" if ratio > 1 + EVEN else "loses" if ratio < 1 - EVEN else "even"
        outcome = outcome if library < math.inf else "not taken"
        tally[outcome] += 1
        work = 2e-9 * case.batch * case.m * case.n * case.k
        speeds = f"{work / static:7.0f} {work / tuned:7.0f} {work / library:8.0f}"
        print(f"{case!s:<40} {speeds} {ratio:6.2f} {outcome}", flush=True)
    print(", ".join(f"{outcome}: {count}" for outcome, count in tally.items()))


def _times(
    case: Case, conditions: Conditions, measurer: Local, trials: int, names: Sequence[str]
) -> tuple[float, float, float]:
    """Return the seconds of a call: untuned, the best of the search, the fastest library."""
    task, module = _task(case, conditions)
    every = {each.implementation: each for each in plans(module, conditions)}

    def timed(made: Sequence[tuple[str, str]]) -> list[float]:
        candidates = [
            lambda name=name, text=text: replay(module, name, text, conditions)
            for name, text in made
        ]
        return [found.median for found in measurer.measure(candidates, rivals=False)]

    offered = [(name, every[name].schedule) for name in (DIRECT, *names) if name in every]
    found = dict(zip([name for name, _ in offered], timed(offered), strict=True))
    tuned = min(_searched(task, module, conditions, trials, timed), default=math.inf)
    static = found.pop(DIRECT, math.inf)
    return static, min(static, tuned), min(found.values(), default=math.inf)


def _searched(
    task: Task,
    module: Any,  # noqa: ANN401 - tvm
    conditions: Conditions,
    trials: int,
    timed: Callable[[Sequence[tuple[str, str]]], list[float]],
) -> Iterator[float]:
    """Yield the times of the settings that the template's search asks for."""
    problem = Problem(task, module, conditions, (), BATCH, seed=0)
    search = AutoTVM(conditions).search(problem)
    while search is not None and trials > 0:
        schedules = search.propose(min(BATCH, trials))
        if not schedules:
            return
        times = timed([(DIRECT, text) for text in schedules])
        search.learn([MeasuredSchedule(*each) for each in zip(schedules, times, strict=True)])
        trials -= len(schedules)
        yield from times


def _task(case: Case, conditions: Conditions) -> tuple[Task, Any]:
    """Return the task of a product as the pipeline would have it, and its module."""
    before = (case.batch,) if case.batch > 1 else ()
    left = relax.Var("x", relax.TensorType((*before, case.m, case.k), "float32"))
    right = relax.Var("w", relax.TensorType((*before, case.k, case.n), "float32"))
    bias = relax.Var("bias", relax.TensorType((case.n,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [left, right, *([bias] if case.after else [])]):
        with builder.dataflow():
            value = builder.emit(relax.op.matmul(left, right))
            if case.after:
                value = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(value, bias))))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    module = builder.get()
    inputs = 1 if case.weight else 2
    module.update_func(module.get_global_var("main"), module["main"].with_attr("num_input", inputs))
    (task,), modules = extract_tasks(lowering.lower(module, conditions.target))
    return task, described(modules[task.workload], task.info)


if __name__ == "__main__":
    main()
