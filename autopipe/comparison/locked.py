"""What a lock says of a build."""

from collections.abc import Mapping
from typing import Final

from autopipe.comparison.build import Build, BuiltTask, Kind, Time, flat
from autopipe.lock.lock import Lock, LockedTask

_DEVICE: Final = ("kind", "arch", "mcpu")
"""What of the target tells where its tasks were timed; a lock says no more of that."""


def of(lock: Lock, file: str) -> Build:
    """Return what a lock says."""
    stages = {f"stages.{name}": version for name, version in lock.stages.items()}
    versions: dict[str, object] = {
        name: v for facet in lock.versions.values() for name, v in facet.items()
    }
    return Build(
        kind=Kind.LOCK,
        file=file,
        pipeline=lock.pipeline,
        facts={
            "configuration": dict(flat(lock.configuration)),
            "target": dict(flat(lock.target)),
            "versions": versions | stages,
            "sources": lock.sources,
            "artifacts": lock.artifacts,
        },
        tasks=tuple(map(_task, lock.tasks)),
        machine={name: lock.target.get(name) for name in _DEVICE},
    )


def _task(task: LockedTask) -> BuiltTask:
    decisions: Mapping[str, object] = {
        "engine": task.engine, "implementation": task.implementation, "schedule": task.schedule,
        "calls": task.calls, "ops": list(task.ops),
    }  # fmt: skip
    return BuiltTask(task.name, task.workload, decisions, _time(task.microseconds))


def _time(microseconds: tuple[float, float, float] | None) -> Time | None:
    if microseconds is None:
        return None
    low, median, high = (value / 1e6 for value in sorted(microseconds))
    return Time(median, low, high)
