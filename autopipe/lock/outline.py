"""What a build rests on, and what it came to, as a lock."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from autopipe.artifacts.library import BuiltLibrary, LibraryTask
from autopipe.artifacts.signature import LIBRARIES
from autopipe.artifacts.tuning import TuningResult
from autopipe.config.pipeline import Pipeline
from autopipe.config.problem import format_value
from autopipe.environment.environment import Environment
from autopipe.environment.facet import Facet, Facts
from autopipe.lock import records as beside
from autopipe.lock.document import Lock, LockedTask, Schedule
from autopipe.pipeline.keys import digest_sources
from autopipe.pipeline.stage import Stage
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.content import TreeDigests
from autopipe.tasks.task import read_tasks

DECISIVE: Final = frozenset(
    {
        "version", "model", "target", "layout", "fusion", "tasks", "tuning", "schedules",
        "numerics", "verify", "package",
    }
)  # fmt: skip
"""Sections of the pipeline file that decide the bytes of a build."""

_ELSEWHERE: Final = frozenset({Facet.TARGET, Facet.DEVICE})
"""What is no version: the target has its own place, and where was measured decides no bytes."""

_LIBRARIES: Final = Facet.LIBRARIES.value

_LONGEST: Final = 80
"""Characters of a value that a difference shows."""


@dataclass(frozen=True, slots=True)
class LockOutline:
    """What is known of a lock before anything is built: all that the build will rest on."""

    pipeline: str
    configuration: dict[str, Any]
    sources: dict[str, str]
    target: dict[str, Any]
    versions: dict[str, dict[str, str | None]]
    stages: dict[str, int]

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        stages: Iterable[Stage],
        environment: Environment,
        contents: TreeDigests,
        *,
        ask: bool,
    ) -> "LockOutline | None":
        """Return what a run of the stages would rest on; None where TVM had to be asked first.

        With `ask`, it is asked. Raises ConfigError for a source that can not be read, SetupError
        and TargetError.
        """
        stages = [stage for stage in stages if stage.cached]
        facets = {facet for stage in stages for facet in stage.reads}
        facts = environment.facts(facets) if ask else environment.known(facets)
        if facts is None:
            return None
        return cls(
            pipeline.name,
            pipeline.model_dump(mode="json", include=set(DECISIVE)),
            {
                f"{stage.name}.{name}": digest
                for stage in stages
                for name, digest in digest_sources(stage, contents).items()
            },
            dict(facts.get(Facet.TARGET, {})),
            _list_versions(facts),
            {stage.name: stage.version for stage in stages},
        )

    def differences(self, lock: Lock) -> list[str]:
        """Name all that the lock was written for and that is otherwise now."""
        names = ("pipeline", "configuration", "sources", "target", "versions", "stages")
        locked = {name: getattr(lock, name) for name in names}
        now = {name: getattr(self, name) for name in names}
        here = self.versions.get(_LIBRARIES, {})
        used = {name: here.get(name) for name in lock.versions.get(_LIBRARIES, {})}
        return list_differences(locked, {**now, "versions": {**self.versions, _LIBRARIES: used}})

    def filled(
        self, artifacts: Mapping[str, Artifact], tuned: TuningResult | None, contents: TreeDigests
    ) -> Lock:
        """Return the lock of a build; `tuned` is what its artifact of *tune* holds, if any."""
        built = BuiltLibrary.read(artifacts["build"].path).tasks
        ops = {task.name: task.info.names for task in read_tasks(artifacts["tasks"].path)}
        return Lock(
            version=1, pipeline=self.pipeline, configuration=self.configuration,
            sources=self.sources, target=self.target, versions=self._select_used_versions(built),
            stages=self.stages,
            records=hashlib.sha256(beside.format_records(tuned).encode()).hexdigest()
            if tuned
            else None,
            tasks=tuple(_lock_task(task, ops, tuned) for task in built),
            artifacts=_digest_shipped_files(artifacts.values(), contents),
        )  # fmt: skip

    def _select_used_versions(
        self, tasks: Iterable[LibraryTask]
    ) -> dict[str, dict[str, str | None]]:
        """Return the versions; of libraries, only of those that the build calls."""
        called = {task.implementation for task in tasks}
        here = self.versions.get(_LIBRARIES, {})
        libraries = {name: version for name, version in here.items() if name in called}
        return {**self.versions, _LIBRARIES: libraries}


def list_differences(locked: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name every entry that differs, as `configuration.tuning.seed: locked 0, now 1`."""
    return [
        f"{at}: locked {_format_value(a)}, now {_format_value(b)}"
        for at, a, b in _walk_differences(locked, now, "")
    ]


def _walk_differences(locked: object, now: object, at: str) -> Iterator[tuple[str, object, object]]:
    """Yield where two values part, and both as they are there."""
    if isinstance(locked, Mapping) and isinstance(now, Mapping):
        for name in sorted(locked.keys() | now.keys()):
            below = f"{at}.{format_value(name)}" if at else format_value(name)
            yield from _walk_differences(locked.get(name, ...), now.get(name, ...), below)
    elif _is_mapping_list(locked) and _is_mapping_list(now) and len(locked) == len(now):
        for place, pair in enumerate(zip(locked, now, strict=True)):
            yield from _walk_differences(*pair, f"{at}.{place}")
    elif locked != now:
        yield at, locked, now


def _is_mapping_list(value: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    return isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value)


def _format_value(value: object) -> str:
    if value is ...:
        return "nothing"
    if isinstance(value, str) and len(value) == 64:  # noqa: PLR2004 - a digest
        return value[:12]
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _list_versions(facts: Facts) -> dict[str, dict[str, str | None]]:
    return {
        facet.value: {name: None if v is None else str(v) for name, v in said.items()}
        for facet, said in facts.items()
        if facet not in _ELSEWHERE
    }


def _lock_task(
    task: LibraryTask, ops: Mapping[str, tuple[str, ...]], tuned: TuningResult | None
) -> LockedTask:
    record = tuned.records.get(task.workload) if tuned and task.seconds is not None else None
    return LockedTask(
        name=task.name, workload=task.workload, ops=ops[task.name], calls=task.calls,
        engine=task.engine, implementation=task.implementation,
        schedule=_lock_schedule(record.schedule) if record else None,
        microseconds=_to_microseconds(record.seconds) if record else None,
        trials=record.trials if record else 0,
    )  # fmt: skip


def _lock_schedule(text: str) -> Schedule:
    document = json.loads(text)
    if isinstance(document, dict):
        return document
    return f"trace {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _to_microseconds(seconds: Iterable[float]) -> tuple[float, float, float]:
    times = sorted(seconds)
    least, median, most = times[0], times[len(times) // 2], times[-1]
    return _round_microseconds(least), _round_microseconds(median), _round_microseconds(most)


def _round_microseconds(seconds: float) -> float:
    """Round for people, but never down to nothing."""
    return round(seconds * 1e6, 3) or float(f"{seconds * 1e6:.3g}")


def _digest_shipped_files(artifacts: Iterable[Artifact], contents: TreeDigests) -> dict[str, str]:
    """Return the sha256 of the files that are shipped."""
    return {
        file.name: file.sha256
        for artifact in artifacts
        if artifact.kind in {Kind.LIBRARY, Kind.PACKAGE}
        for file in contents.manifest(artifact.path)
        if artifact.kind is Kind.PACKAGE or file.name in {*LIBRARIES, "weights.safetensors"}
    }
