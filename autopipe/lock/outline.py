"""Build a lock from the inputs of a run and the artifacts of its build."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

from autopipe.artifacts.build_results import read_build_results
from autopipe.artifacts.library import LibraryTask
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

DECISIVE: Final = frozenset(
    {
        "version", "model", "target", "layout", "fusion", "tasks", "tuning", "schedules",
        "numerics", "verify", "package",
    }
)  # fmt: skip
"""Sections of the pipeline file that determine the bytes of a build."""

_ELSEWHERE: Final = frozenset({Facet.TARGET, Facet.DEVICE})
"""Facets that are no versions: the target has its own field, the device changes no bytes."""

_LIBRARIES: Final = Facet.LIBRARIES.value

_LONGEST: Final = 80
"""Characters of a value that a difference shows."""


class LockOutline(NamedTuple):
    """The part of a lock that is known before the build: everything that the build depends on."""

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
        """Collect the inputs of a run of the stages; None if that needs facts from TVM.

        With `ask`, TVM is asked. Raises ConfigError for a source that cannot be read, SetupError
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
        """List the entries in which the lock differs from the present, with both values."""
        names = ("pipeline", "configuration", "sources", "target", "versions", "stages")
        locked_facts = {name: getattr(lock, name) for name in names}
        now = {name: getattr(self, name) for name in names}
        library_versions = self.versions.get(_LIBRARIES, {})
        used_libraries = {
            name: library_versions.get(name) for name in lock.versions.get(_LIBRARIES, {})
        }
        return list_differences(
            locked_facts, {**now, "versions": {**self.versions, _LIBRARIES: used_libraries}}
        )

    def to_lock(self, artifacts: Mapping[str, Artifact], contents: TreeDigests) -> Lock:
        """Return the lock of a build."""
        tasks, tuning_result, library = read_build_results(artifacts)
        built_tasks = library.tasks
        ops = {task.name: task.info.names for task in tasks}
        return Lock(
            version=1, pipeline=self.pipeline, configuration=self.configuration,
            sources=self.sources, target=self.target,
            versions=self._select_used_versions(built_tasks),
            stages=self.stages,
            records=hashlib.sha256(beside.format_records(tuning_result).encode()).hexdigest()
            if tuning_result
            else None,
            tasks=tuple(_lock_task(task, ops, tuning_result) for task in built_tasks),
            artifacts=_digest_shipped_files(artifacts.values(), contents),
        )  # fmt: skip

    def _select_used_versions(
        self, tasks: Iterable[LibraryTask]
    ) -> dict[str, dict[str, str | None]]:
        """Return the versions, with only those libraries that the build calls."""
        called_names = {task.implementation for task in tasks}
        library_versions = self.versions.get(_LIBRARIES, {})
        libraries = {
            name: version for name, version in library_versions.items() if name in called_names
        }
        return {**self.versions, _LIBRARIES: libraries}


def list_differences(locked: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List every entry that differs, such as `configuration.tuning.seed: locked 0, now 1`."""
    return [
        f"{at}: locked {_format_value(a)}, now {_format_value(b)}"
        for at, a, b in _walk_differences(locked, now, "")
    ]


def _walk_differences(locked: object, now: object, at: str) -> Iterator[tuple[str, object, object]]:
    """Yield (path, locked value, current value) for each entry that differs."""
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
        facet.value: {name: None if v is None else str(v) for name, v in versions.items()}
        for facet, versions in facts.items()
        if facet not in _ELSEWHERE
    }


def _lock_task(
    task: LibraryTask, ops: Mapping[str, tuple[str, ...]], tuning_result: TuningResult | None
) -> LockedTask:
    record = (
        tuning_result.records.get(task.workload)
        if tuning_result and task.seconds is not None
        else None
    )
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
    minimum, median, maximum = times[0], times[len(times) // 2], times[-1]
    return _round_microseconds(minimum), _round_microseconds(median), _round_microseconds(maximum)


def _round_microseconds(seconds: float) -> float:
    """Round to nanoseconds, or to three digits if that would be zero."""
    return round(seconds * 1e6, 3) or float(f"{seconds * 1e6:.3g}")


def _digest_shipped_files(artifacts: Iterable[Artifact], contents: TreeDigests) -> dict[str, str]:
    """Return the sha256 of the libraries, weights and packages, by file name."""
    return {
        file.name: file.sha256
        for artifact in artifacts
        if artifact.kind in {Kind.LIBRARY, Kind.PACKAGE}
        for file in contents.manifest(artifact.path)
        if artifact.kind is Kind.PACKAGE or file.name in {*LIBRARIES, "weights.safetensors"}
    }
