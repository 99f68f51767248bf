"""Which schedule each task is built with: its record, or the first fallback that serves it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from autopipe.errors import AutopipeError
from autopipe.schedules.fallback import fall
from autopipe.schedules.replay import replay
from autopipe.task import Task


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheduled workload, and how it came about."""

    module: tvm.IRModule
    """The workload module with `main` scheduled."""
    engine: str
    """Name of the engine, or of the fallback."""
    reason: str
    """Why it is this one."""
    seconds: float | None
    """Median measured time of one call; null for a fallback."""


def choose(
    task: Task,
    workload: tvm.IRModule,
    record: Mapping[str, Any] | None,
    fallback: Sequence[str],
    target: tvm.target.Target,
) -> Choice:
    """Return the schedule that a task is built with."""
    reason = f"not tuned: {task.dropped}" if task.dropped else "no record"
    if record is not None:
        try:
            times = sorted(record["seconds"])
            scheduled = replay(workload, record["trace"])
            return Choice(scheduled, record["engine"], "best record", times[len(times) // 2])
        except AutopipeError as error:
            reason = f"its record does not apply: {error}"
    found = fall(fallback, workload, target)
    module = workload if found.schedule is None else found.schedule.mod
    return Choice(module, found.engine, reason, None)
