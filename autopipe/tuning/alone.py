"""Tunes one workload in a child process: the other side of `auto_schedule`."""

import math
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

import tvm

from autopipe import extensions
from autopipe.artifacts.tuning import BestRecord, TuningResult
from autopipe.compiler.labels.op_info import annotate_workload, read_op_info
from autopipe.compiler.module_io import load_module, save_json, save_module
from autopipe.compiler.target import machine
from autopipe.compiler.tasks import make_task, make_workload
from autopipe.config.schedules import Rule, Schedules
from autopipe.config.tuning import Tuning
from autopipe.environment.facet import Facet
from autopipe.errors import ModelError
from autopipe.pipeline.events import Emit
from autopipe.pipeline.stage import Context
from autopipe.records.record import Record
from autopipe.safety.failures import Failures
from autopipe.safety.inspection import Inspector
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Finding, Verdict
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.policy import Policy
from autopipe.schedules.replay import replay_schedule
from autopipe.tasks.task import Task
from autopipe.tuning.run import tune_tasks
from autopipe.tuning.setup import TuningPlan

_ANSWERING: Final = 0.05
"""Part of the seconds that making the winner again may take."""

_CHECK_PART_OF_REST: Final = 0.7
"""Part of the seconds left that the last check may take, if the winner was not checked before."""

_LEAST: Final = 0.01
"""Seconds that are as good as none."""


def tune_workload(argument: Mapping[str, Any], emit: Emit) -> dict[str, object]:
    """Tune `module.json` of a folder and return the record and the result of each arm.

    It is only why tuning ended where that was before anything was measured.
    """
    end = monotonic() + (argument["seconds"] or math.inf)
    ctx = make_context(argument, emit)
    for name in ("tasks", "tasks/workloads", "out"):
        (ctx.work / name).mkdir()
    loops = load_module(ctx.work / "module.json")
    task = _write_task(loops, ctx.inputs["tasks"])
    extensions.check_extensions()
    machine.check(ctx.facts[Facet.TARGET])
    rule = Rule.model_validate_json(argument["rule"])
    tuning = _limit_budget(Tuning.model_validate_json(argument["tuning"]), end - monotonic())
    policy = Policy((rule,), Schedules().fallback)
    fast = argument["fast_algorithms"]
    tune_tasks(TuningPlan(tuning, policy, "round_robin", fast), ctx)
    return _read_outcome(
        task, ctx, Conditions.of(ctx.facts[Facet.TARGET], fast_algorithms=fast), end
    )


def _limit_budget(tuning: Tuning, seconds: float) -> Tuning:
    """Return section `tuning` with a budget that ends before an answer is due."""
    if math.isinf(seconds):
        return tuning
    time = max(_LEAST, (1 - _ANSWERING) * seconds)
    return tuning.model_copy(update={"budget": tuning.budget.model_copy(update={"time": time})})


def make_context(argument: Mapping[str, Any], emit: Emit) -> Context:
    """Build the stage context of a request: its own folder, and the facts."""
    folder = Path(argument["folder"])
    return Context(
        inputs={"tasks": folder / "tasks"},
        facts={Facet(name): facts for name, facts in argument["facts"].items()},
        out=folder / "out",
        work=folder,
        records=Path(argument["records"]),
        emit=emit,
    )


def _write_task(loops: tvm.IRModule, folder: Path) -> Task:
    """Write the artifact of stage `tasks` for one workload. Raises ModelError."""
    function = loops["main"]
    workload = make_workload(function)
    name = str((function.attrs or {}).get("global_symbol", "main"))
    task = make_task(0, workload, [name], read_op_info(function)).model_copy(update={"share": 1.0})
    if any(-1 in tensor.shape for tensor in (*task.inputs, *task.outputs)):
        raise ModelError(f"{name} cannot be tuned: a dimension is symbolic; bind it to a number")
    save_json([task.model_dump(mode="json")], folder / "tasks.json")
    save_module(workload.module, folder / "workloads" / f"{task.workload}.json")
    return task


def _read_outcome(
    task: Task, ctx: Context, conditions: Conditions, end: float
) -> dict[str, object]:
    """Make the best schedule again."""
    tuning_result = TuningResult.read(ctx.out)
    if not tuning_result.records:
        return {"ended": tuning_result.report.ended}
    record, row = tuning_result.records[task.workload], tuning_result.tasks[task.workload]
    verdict = _check_winner(make_suspect(task, record, ctx, conditions), ctx, conditions, end)
    contenders = [contender.document() for contender in row.contenders]
    return {
        **describe_winner(task, record, row.seconds, verdict),
        "contenders": contenders, "ended": tuning_result.report.ended,
    }  # fmt: skip


def describe_winner(
    task: Task, record: Record | BestRecord, seconds: float | None, verdict: Verdict
) -> dict[str, object]:
    """Build the fields of `Scheduled` for a winner."""
    right = verdict.finding is Finding.RIGHT
    return {
        "engine": record.engine, "implementation": record.implementation,
        "schedule": record.schedule, "seconds": seconds, "flops": task.flops,
        "unchecked": None if right else (verdict.reason or "no reason given"),
    }  # fmt: skip


def make_suspect(
    task: Task, record: Record | BestRecord, ctx: Context, conditions: Conditions
) -> Piece:
    """Replay a recorded schedule for its check. Raises StageError if it no longer applies."""
    loops = load_module(ctx.inputs["tasks"] / "workloads" / f"{task.workload}.json")
    loops = annotate_workload(loops, task.info)
    module = replay_schedule(loops, record.implementation, record.schedule, conditions)
    maker = record.engine, record.implementation, record.schedule
    return Piece("checking", task.name, loops, *maker, module)


def _check_winner(suspect: Piece, ctx: Context, conditions: Conditions, end: float) -> Verdict:
    """Return the verdict on the winner, or the reason that it could not be checked."""
    failures = Failures.of(ctx, conditions, "tune", "fallback")
    inspector = Inspector.of(
        ctx, failures, patience=lambda: max(_LEAST, _CHECK_PART_OF_REST * (end - monotonic()))
    )
    (verdict,) = inspector.judge([suspect])
    return verdict
