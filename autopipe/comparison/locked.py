"""Read the facts of a build from a lock."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final

from autopipe.comparison.build import Build, BuiltTask, Time, flatten_document
from autopipe.lock import file as files
from autopipe.lock import records as beside
from autopipe.lock.document import Lock, LockedTask
from autopipe.lock.recognize import FileKind, find_records_path
from autopipe.traces.wording import describe_steps, is_trace

_DEVICE: Final = ("kind", "arch", "mcpu")
"""Fields of the target that identify the machine of the times; a lock has no others."""


def read_traces(lock: Lock, path: Path) -> Mapping[str, tuple[str, ...]]:
    """Describe the steps of each trace in a lock's records, by workload.

    Empty without the records, or if their digest is not that in the lock. Raises LockError for
    records that cannot be read.
    """
    records = find_records_path(path)
    if lock.records is None or not records.is_file():
        return {}
    text = files.read_text(records)
    if sha256(text.encode()).hexdigest() != lock.records:
        return {}
    best = beside.read_records(text, records).records.values()
    return {
        record.workload: describe_steps(record.schedule)
        for record in best
        if is_trace(record.schedule)
    }


def describe_lock(
    lock: Lock, file: str, steps: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> Build:
    """Build the facts of a lock; `steps` are those of its traces, by workload."""
    stages = {f"stages.{name}": version for name, version in lock.stages.items()}
    versions: dict[str, object] = {
        name: v for facet in lock.versions.values() for name, v in facet.items()
    }
    return Build(
        kind=FileKind.LOCK,
        file=file,
        pipeline=lock.pipeline,
        facts={
            "configuration": dict(flatten_document(lock.configuration)),
            "target": dict(flatten_document(lock.target)),
            "versions": versions | stages,
            "sources": lock.sources,
            "artifacts": lock.artifacts,
        },
        tasks=tuple(_describe_task(task, steps) for task in lock.tasks),
        machine={name: lock.target.get(name) for name in _DEVICE},
    )


def _describe_task(task: LockedTask, steps: Mapping[str, tuple[str, ...]]) -> BuiltTask:
    decisions: Mapping[str, object] = {
        "engine": task.engine, "implementation": task.implementation, "schedule": task.schedule,
        "calls": task.calls, "ops": list(task.ops),
    }  # fmt: skip
    own_steps = steps.get(task.workload) if isinstance(task.schedule, str) else None
    return BuiltTask(task.name, task.workload, decisions, _to_seconds(task.microseconds), own_steps)


def _to_seconds(microseconds: tuple[float, float, float] | None) -> Time | None:
    if microseconds is None:
        return None
    low, median, high = (value / 1e6 for value in sorted(microseconds))
    return Time(median, low, high)
