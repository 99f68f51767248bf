"""Recover the best schedule of a workload from disk after its tuning exceeded its time."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from autopipe.config.schedules import Rule
from autopipe.environment.facet import Facet
from autopipe.pipeline.attempt import SESSION
from autopipe.pipeline.stage import Context
from autopipe.records.record import REPEAT_SUFFIX, Platform, Record
from autopipe.records.store import RecordStore
from autopipe.safety.failures import Failures
from autopipe.safety.inspection import Inspector
from autopipe.safety.verdict import Finding
from autopipe.schedules.conditions import Conditions
from autopipe.tasks.task import Task, read_tasks
from autopipe.tuning.alone import describe_winner, make_context, make_suspect
from autopipe.tuning.trials import LATE

_LIKELY: Final = 3
"""Number of the fastest records that are considered as a partial result."""


def recover_outcome(argument: Mapping[str, Any]) -> dict[str, object] | None:
    """Return the outcome of a tuning that was ended: the fastest that is known to be right.

    None if nothing is. It is asked of what was timed first, and of the fastest: no others are
    checked before a search ends.
    """
    ctx = make_context(argument, lambda _: None)
    if not (ctx.work / SESSION).exists():
        return None
    (task,) = read_tasks(ctx.inputs["tasks"])
    conditions = Conditions.of(ctx.facts[Facet.TARGET], fast_algorithms=argument["fast_algorithms"])
    inspector = Inspector.of(ctx, Failures.of(ctx, conditions, "tune", "fallback"))
    rows = _list_timed_records(task, ctx)
    engines = Rule.model_validate_json(argument["rule"]).engines
    first = [row for row in rows if row.engine not in engines]
    for row in sorted({*first, *rows[:_LIKELY]}, key=rows.index):
        suspect = make_suspect(task, row, ctx, conditions)
        verdict = inspector.recall(suspect)
        if verdict is not None and verdict.finding is Finding.RIGHT:
            outcome = describe_winner(task, row, row.median, verdict)
            return {**outcome, "contenders": _summarize_contenders(rows), "ended": LATE}
    return None


def _list_timed_records(task: Task, ctx: Context) -> list[Record]:
    """List the stored records of a task, the fastest first."""
    platform = Platform.of(*(ctx.facts[f] for f in (Facet.TARGET, Facet.TVM, Facet.DEVICE)))
    text = (ctx.inputs["tasks"] / "workloads" / f"{task.workload}.json").read_text("utf-8")
    with RecordStore.open(ctx.records, lambda _: None) as store:
        records = [row.record for row in store.rows(task.workload, text, platform)]
    timed_records = [record for record in records if record.median < math.inf]
    return sorted(timed_records, key=lambda record: (record.cut, record.median))


def _summarize_contenders(records: Sequence[Record]) -> list[dict[str, object]]:
    """Return the result of each arm from the stored records, the fastest first."""
    best = {(r.engine, r.implementation): r.median for r in reversed(records)}
    trials = [record for record in records if not record.session.endswith(REPEAT_SUFFIX)]
    counts = Counter((record.engine, record.implementation) for record in trials)
    return [
        {"engine": by[0], "implementation": by[1], "trials": counts[by], "failed": 0,
         "seconds": best[by], "stopped": LATE}
        for by in sorted(best, key=best.__getitem__)
    ]  # fmt: skip
