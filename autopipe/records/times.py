"""Plausibility of times in records from elsewhere."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence

from autopipe.artifacts.tuning import BestRecord
from autopipe.records.record import FASTEST, Platform
from autopipe.tasks.task import Task


def list_untrue_times(
    records: Iterable[BestRecord], tasks: Iterable[Task], target: Mapping[str, object]
) -> dict[str, str]:
    """List the records with impossible times, with the reason, by workload.

    The lower bound is the peak compute rate of the target; for an unknown workload it is one clock
    cycle.
    """
    platform = Platform(json.dumps(dict(target)), "", "")
    by_workload = {task.workload: (task.name, platform.least(_count_flops(task))) for task in tasks}
    untrue: dict[str, str] = {}
    for record in records:
        name, least = by_workload.get(record.workload, (f"workload {record.workload}", FASTEST))
        if reason := _explain_untrue_time((*record.seconds, *record.inside), least):
            untrue[record.workload] = f"task {name}: {reason}"
    return untrue


def _count_flops(task: Task) -> float:
    return task.flops if math.isfinite(task.flops) else 0.0


def _explain_untrue_time(seconds: Sequence[float], least: float) -> str | None:
    fastest = min(seconds)
    return f"{fastest:.1e} s, which no processor reaches" if fastest < least else None
