"""Which schedule each task is built with: the first right one of its record and its fallbacks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import tvm

from autopipe.errors import AutopipeError
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.fallback import falls
from autopipe.schedules.implementation import DIRECT
from autopipe.schedules.inspection import Judge, Verdict
from autopipe.schedules.policy import Policy, allows
from autopipe.schedules.quarantine import Suspect
from autopipe.schedules.replay import replay
from autopipe.task import Task


@dataclass(frozen=True, slots=True)
class Asked:
    """A task to be built."""

    task: Task
    workload: tvm.IRModule
    record: Mapping[str, Any] | None
    """Its line of `records.jsonl`."""
    share: float
    """Its part of the model's time."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheduled workload, and how it came about."""

    module: tvm.IRModule
    """The workload module with `main` scheduled."""
    engine: str
    """Name of the engine, or of the fallback."""
    implementation: str
    reason: str
    """Why it is this one."""
    seconds: float | None = None
    """Median measured time of one call; null for a fallback."""
    schedule: str | None = None
    """How it is made again; null where nothing is scheduled."""
    rule: int | None = None
    """Which rule of the policy the task fell under; null for none."""
    checked: bool = False
    """Whether it was compared with the plain loops."""
    unchecked: str | None = None
    """Why it was not."""
    rejected: tuple[Mapping[str, object], ...] = field(default=())
    """What was wrong, and stood before it."""


def choose(
    asked: Sequence[Asked], policy: Policy, conditions: Conditions, judge: Judge
) -> list[Choice]:
    """Return the schedule that each task is built with, in order."""
    chains = [_chain(each, policy, conditions) for each in asked]
    chosen = [next(chain) for chain in chains]
    open_ones = list(range(len(asked)))
    while open_ones:
        judged = [i for i in open_ones if chosen[i].schedule is not None]
        verdicts = judge.judge([_suspect(asked[i], chosen[i]) for i in judged])
        open_ones = []
        for place, verdict in zip(judged, verdicts, strict=True):
            if verdict.right is False:
                chosen[place] = _after(chosen[place], verdict, next(chains[place]))
                open_ones.append(place)
            else:
                chosen[place] = replace(
                    chosen[place], checked=bool(verdict.right), unchecked=verdict.reason
                )
    return chosen


def _chain(asked: Asked, policy: Policy, conditions: Conditions) -> Iterator[Choice]:
    """Yield what a task may be built with, the best first; the plain loops are always the last."""
    task, record = asked.task, asked.record
    position, rule = policy.rule(task, asked.share)
    reason = f"not tuned: {task.dropped}" if task.dropped else "no record"
    if record is not None:
        try:
            yield replace(_recorded(asked.workload, record, conditions), rule=position)
            reason = "its record is wrong"
        except AutopipeError as error:
            reason = f"its record does not apply: {error}"
    for found in falls(policy.chain(rule), asked.workload, conditions, partial(allows, rule)):
        if found.planned is None:
            yield Choice(asked.workload, found.engine, DIRECT, reason, rule=position)
        else:
            planned = found.planned
            yield Choice(
                planned.module, found.engine, planned.implementation, reason,
                schedule=planned.schedule, rule=position,
            )  # fmt: skip


def _recorded(workload: tvm.IRModule, record: Mapping[str, Any], conditions: Conditions) -> Choice:
    times = sorted(record["seconds"])
    implementation, schedule = record["implementation"], record["schedule"]
    module = replay(workload, implementation, schedule, conditions)
    seconds = times[len(times) // 2]
    return Choice(module, record["engine"], implementation, "best record", seconds, schedule)


def _suspect(asked: Asked, choice: Choice) -> Suspect:
    return Suspect(
        asked.task.name, choice.engine, choice.implementation, choice.schedule or "",
        asked.workload, choice.module,
    )  # fmt: skip


def _after(wrong: Choice, verdict: Verdict, following: Choice) -> Choice:
    entry = {
        "engine": wrong.engine, "implementation": wrong.implementation,
        "reason": verdict.reason, "folder": verdict.folder,
    }  # fmt: skip
    reason = f"{wrong.engine} on {wrong.implementation} is wrong"
    return replace(following, reason=reason, rejected=(*wrong.rejected, entry))
