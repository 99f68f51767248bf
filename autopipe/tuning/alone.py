"""Tunes one workload in a child process: the other side of `auto_schedule`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tvm

from autopipe import config, extensions
from autopipe.artifacts.tuning import TuningResult
from autopipe.compiler.module_io import load_module, save_json, save_module
from autopipe.compiler.op_info import carried, described
from autopipe.compiler.target import machine
from autopipe.compiler.tasks import task_of, workload
from autopipe.config.schedules import Rule, Schedules
from autopipe.environment.facet import Facet
from autopipe.errors import ModelError, StageError
from autopipe.pipeline.events import Event
from autopipe.pipeline.stage import Context
from autopipe.safety.failures import Failures
from autopipe.safety.inspection import Inspector
from autopipe.safety.quarantine import Suspect
from autopipe.safety.verdict import Finding, Verdict
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.policy import Policy
from autopipe.schedules.replay import replay
from autopipe.tasks.task import Task
from autopipe.tuning.run import tune
from autopipe.tuning.tools import TuningPlan


def answer(argument: Mapping[str, Any], emit: Callable[[Event], None]) -> dict[str, object]:
    """Tune `module.json` of a folder and return the outcome: the record and who took part."""
    ctx = _context(argument, emit)
    loops = load_module(ctx.work / "module.json")
    task = _task(loops, ctx.inputs["tasks"])
    extensions.check()
    machine.check(ctx.facts[Facet.TARGET])
    rule = Rule.model_validate_json(argument["rule"])
    tuning = config.Tuning.model_validate_json(argument["tuning"])
    policy = Policy((rule,), Schedules().fallback)
    tune(TuningPlan(tuning, policy, "round_robin", argument["fast_algorithms"]), ctx)
    conditions = Conditions.of(ctx.facts[Facet.TARGET], fast_algorithms=argument["fast_algorithms"])
    return _outcome(task, ctx, conditions)


def _context(argument: Mapping[str, Any], emit: Callable[[Event], None]) -> Context:
    folder = Path(argument["folder"])
    for name in ("tasks", "tasks/workloads", "out"):
        (folder / name).mkdir()
    return Context(
        inputs={"tasks": folder / "tasks"},
        facts={Facet(name): facts for name, facts in argument["facts"].items()},
        out=folder / "out",
        work=folder,
        records=Path(argument["records"]),
        emit=emit,
    )


def _task(loops: tvm.IRModule, folder: Path) -> Task:
    """Write the artifact of stage `tasks` for one workload. Raises ModelError."""
    function = loops["main"]
    found = workload(function)
    name = str((function.attrs or {}).get("global_symbol", "main"))
    task = task_of(0, found, [name], carried(function)).model_copy(update={"share": 1.0})
    if any(-1 in tensor.shape for tensor in (*task.inputs, *task.outputs)):
        raise ModelError(f"{name} can not be tuned: a dimension is symbolic; bind it to a number")
    save_json([task.model_dump(mode="json")], folder / "tasks.json")
    save_module(found.module, folder / "workloads" / f"{task.workload}.json")
    return task


def _outcome(task: Task, ctx: Context, conditions: Conditions) -> dict[str, object]:
    """Make the best schedule again. Raises StageError if there is none."""
    tuned = TuningResult.read(ctx.out)
    if not tuned.records:
        raise StageError(f"{task.name}: no schedule was measured: {tuned.report.ended}")
    record, row = tuned.records[task.workload], tuned.tasks[task.workload]
    loops = load_module(ctx.inputs["tasks"] / "workloads" / f"{task.workload}.json")
    loops = described(loops, task.info)
    maker = record.engine, record.implementation, record.schedule
    scheduled = replay(loops, *maker[1:], conditions)
    verdict = _judged(Suspect(task.name, *maker, loops, scheduled), ctx, conditions)
    right = verdict.finding is Finding.RIGHT
    return {
        "engine": maker[0], "implementation": maker[1], "schedule": maker[2],
        "seconds": row.seconds, "flops": task.flops,
        "contenders": [contender.document() for contender in row.contenders],
        "unchecked": None if right else (verdict.reason or "no reason given"),
        "ended": tuned.report.ended,
    }  # fmt: skip


def _judged(suspect: Suspect, ctx: Context, conditions: Conditions) -> Verdict:
    """Return what tuning found of the winner, or why it could not be checked."""
    failures = Failures.of(ctx, conditions, "tune", "fallback")
    (verdict,) = Inspector.of(ctx, failures).judge([suspect])
    return verdict
