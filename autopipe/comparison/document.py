"""Format a difference as JSON for programs: version 1 of its grammar."""

from dataclasses import asdict

from autopipe.comparison.build import ABSENT, Build, Change, Time
from autopipe.comparison.difference import Difference
from autopipe.comparison.matching import TaskChange
from autopipe.store.canonical import pretty


def format_json(difference: Difference) -> str:
    """Format all differences untruncated: sorted keys, two spaces, one newline at the end.

    A side without a value is omitted.
    """
    tasks, latency = difference.tasks, difference.latency
    return pretty(
        {
            "version": 1,
            "same": difference.same,
            "old": _describe_build(difference.old),
            "new": _describe_build(difference.new),
            **{
                topic: list(map(_describe_change, changes))
                for topic, changes in difference.facts.items()
            },
            "tasks": None
            if tasks is None
            else [_describe_task(task) for task in tasks if task.differs],
            "latency": None
            if latency is None
            else [
                {
                    "contender": row.contender, "versions": list(row.versions),
                    "old": asdict(row.old), "new": asdict(row.new), "verdict": row.verdict.name,
                }
                for row in latency
            ],
            "not_compared": {topic: why.value for topic, why in difference.left.items()},
        }
    )  # fmt: skip


def _describe_build(build: Build) -> dict[str, object]:
    return {"file": build.file, "kind": build.kind.value, "pipeline": build.pipeline}


def _describe_change(change: Change) -> dict[str, object]:
    sides = {"old": change.old, "new": change.new}
    present_sides = {side: value for side, value in sides.items() if value is not ABSENT}
    return {"name": change.name, **present_sides}


def _describe_task(change: TaskChange) -> dict[str, object]:
    state = "added" if change.old is None else "removed" if change.new is None else "changed"
    old, new = (_describe_time(time) for time in change.times)
    return {
        "name": change.task.name,
        "workload": change.task.workload,
        "state": state,
        "changes": list(map(_describe_change, change.changes)),
        "seconds": {"old": old, "new": new},
        "verdict": change.verdict and change.verdict.name,
        "steps": list(change.steps),
    }


def _describe_time(time: Time | None) -> dict[str, float | None] | None:
    return None if time is None else asdict(time)
