"""Times that others have written down: whether they can be true at all."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from autopipe.records.record import FASTEST, SLOWEST, Platform
from autopipe.tasks.task import Task


def complaints(
    records: Iterable[Mapping[str, Any]], tasks: Iterable[Task], target: Mapping[str, object]
) -> dict[str, str]:
    """Say of each record whose times can not be true why, by its workload.

    A record is one of the artifact of *tune*, as it is or beside a lock. What a task has to compute
    on this target takes at least so long; of an unknown one only that no call is shorter than a
    cycle is known.
    """
    platform = Platform(json.dumps(dict(target)), "", "")
    by_workload = {task.workload: (task.name, platform.least(_flops(task))) for task in tasks}
    untrue: dict[str, str] = {}
    for record in records:
        workload = str(record["workload"])
        name, least = by_workload.get(workload, (f"workload {workload}", FASTEST))
        if told := _untrue(record.get("seconds"), least):
            untrue[workload] = f"task {name}: {told}"
    return untrue


def _flops(task: Task) -> float:
    return task.flops if math.isfinite(task.flops) else 0.0


def _untrue(seconds: object, least: float) -> str | None:
    if not isinstance(seconds, list | tuple) or not seconds:
        return "it has no times"
    for value in seconds:
        if type(value) not in {int, float} or not 0 < value < SLOWEST:
            return f"{str(value)[:40]!r} is no time of a call"
        if value < least:
            return f"{value:.1e} s, which no processor reaches"
    return None
