"""Which schedule each task is built with: its record, or the first fallback that serves it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from autopipe.errors import AutopipeError
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.fallback import fall
from autopipe.schedules.implementation import DIRECT
from autopipe.schedules.replay import replay
from autopipe.task import Task


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
    seconds: float | None
    """Median measured time of one call; null for a fallback."""


def choose(
    task: Task,
    workload: tvm.IRModule,
    record: Mapping[str, Any] | None,
    fallback: Sequence[str],
    conditions: Conditions,
) -> Choice:
    """Return the schedule that a task is built with."""
    reason = f"not tuned: {task.dropped}" if task.dropped else "no record"
    if record is not None:
        try:
            times = sorted(record["seconds"])
            scheduled = replay(workload, record["implementation"], record["schedule"], conditions)
            return Choice(
                scheduled,
                record["engine"],
                record["implementation"],
                "best record",
                times[len(times) // 2],
            )
        except AutopipeError as error:
            reason = f"its record does not apply: {error}"
    found = fall(fallback, workload, conditions)
    if found.planned is None:
        return Choice(workload, found.engine, DIRECT, reason, None)
    return Choice(found.planned.module, found.engine, found.planned.implementation, reason, None)
