"""Compute the course of tuning: the best time so far, by engine and by time."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from autopipe.records.record import Record
from autopipe.report.document import TuningCourse, TuningCurve

_POINTS: Final = 200
"""Largest number of points of a curve."""
_ALL: Final = "all"


def follow_tuning(
    records: Sequence[Record], calls: Mapping[str, int], *, ended: str, seconds: float
) -> TuningCourse | None:
    """Compute the course of a session from its trials, oldest first; None without a time.

    A curve is the time of all tuned kernels with the best schedules so far, of one engine or of
    all. Each begins with the first time of each kernel, by any engine. `calls` is the number of
    calls of each workload in a run of the model.
    """
    trials = [record for record in records if record.workload in calls]
    first: dict[str, float] = {}
    for record in trials:
        if record.median < math.inf:
            first.setdefault(record.workload, record.median)
    if not first:
        return None
    start = datetime.fromisoformat(trials[0].measured)
    engines = dict.fromkeys(record.engine for record in trials)
    trials_by_engine = {_ALL: trials} if len(engines) > 1 else {}
    trials_by_engine |= {
        one: [record for record in trials if record.engine == one] for one in engines
    }
    curves = (
        _build_curve(name, own, first, calls, start) for name, own in trials_by_engine.items()
    )
    return TuningCourse(ended=ended, seconds=seconds, curves=tuple(curves))


def _build_curve(
    name: str, trials: Iterable[Record], first: Mapping[str, float], calls: Mapping[str, int],
    start: datetime,
) -> TuningCurve:  # fmt: skip
    best = dict(first)
    points = [(0.0, _sum_times(best, calls))]
    count = failure_count = 0
    for record in trials:
        count, failure_count = count + 1, failure_count + (record.median == math.inf)
        at = max(0.0, (datetime.fromisoformat(record.measured) - start).total_seconds())
        if record.median < best.get(record.workload, 0.0):
            best[record.workload] = record.median
            points.append((at, _sum_times(best, calls)))
    return TuningCurve(
        engine=name, trials=count, failed=failure_count, points=tuple(_thin_points(points))
    )


def _sum_times(best: Mapping[str, float], calls: Mapping[str, int]) -> float:
    return sum(calls[workload] * seconds for workload, seconds in sorted(best.items()))


def _thin_points(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Reduce points to at most `_POINTS`, keeping the last one."""
    stride = -(-len(points) // _POINTS)
    sampled_points = list(points[::stride])
    return sampled_points if sampled_points[-1] == points[-1] else [*sampled_points, points[-1]]
