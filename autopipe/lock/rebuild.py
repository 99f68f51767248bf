"""Check that a build is reproducible: build twice more in other folders, compare file by file."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.tuning import TuningResult
from autopipe.environment.environment import Environment
from autopipe.errors import AutopipeError, GateError
from autopipe.lock import records as beside
from autopipe.lock.replay import Replay
from autopipe.pipeline.events import Emit, Progress, StageFailed, StageFinished, StageStarted
from autopipe.pipeline.executor import Executor
from autopipe.pipeline.isolate import Isolate
from autopipe.pipeline.plan import Plan, build_plan
from autopipe.pipeline.stage import Stage
from autopipe.store import files
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.canonical import digest_json
from autopipe.store.store import Store, open_store

STAGE: Final = "rebuild"
"""Name of the check in reports."""

_BUILDS: Final = ("first", "second")
_WENT: Final = {"checked", "unchecked", "reason", "rejected", "failures"}
"""Fields of `library.json` about the checks of a task; some contain folders of the store."""

_SHOWN: Final = 40
"""Maximum number of files in a message."""

Digests = dict[str, dict[str, str]]
"""The sha256 of each file, by stage and name."""


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """A run that is repeated to check that it is reproducible."""

    plan: Plan
    store: Store
    environment: Environment
    isolate: Callable[..., AbstractContextManager[Isolate]]
    """Starts the runner of the stages of one build; takes `tmp`, a folder for temporary files."""
    emit: Emit

    def check(self, artifacts: Mapping[str, Artifact]) -> None:
        """Build twice in new stores and processes, with the records of the first build's tuning.

        Reports and measurements are not compared. Raises GateError with each file that differs,
        those of the first stage first.
        """
        start = time.monotonic()
        self.emit(StageStarted(stage=STAGE))
        digests = {
            name: _digest_files(artifact)
            for name, artifact in artifacts.items()
            if _is_compared(artifact)
        }
        try:
            self._compare_builds(digests, build_plan(self._list_rebuilt_stages(artifacts)))
        except AutopipeError as error:
            failure = StageFailed(stage=STAGE, error=str(error), exit_code=error.exit_code)
            self.emit(failure)
            raise
        number = sum(map(len, digests.values()))
        self.emit(
            StageFinished(
                stage=STAGE,
                digest=digest_json(digests),
                seconds=time.monotonic() - start,
                summary=f"{len(digests)} artifacts, {number} files, all the same when built again",
            )
        )

    def _compare_builds(self, digests: Digests, plan: Plan) -> None:
        builds = [digests]
        try:
            for name in _BUILDS:
                builds.append({})
                root = self.store.tmp / name
                with open_store(root) as store, self.isolate(tmp=store.tmp) as runner:
                    executor = Executor(store, self.environment, runner, lambda _: None)
                    self._rebuild_stages(plan, executor, name, builds[-1])
                files.remove(root)
        except AutopipeError as error:
            if differences := _list_differences(
                builds
            ):  # a stage with different inputs may well fail
                raise _build_gate_error(differences) from error
            raise
        if differences := _list_differences(builds):
            raise _build_gate_error(differences)

    def _list_rebuilt_stages(self, artifacts: Mapping[str, Artifact]) -> list[Stage]:
        """Return the cached stages, with tuning replaced by a replay of its records."""
        records = self.store.tmp / "rebuild.records.jsonl"
        stages: list[Stage] = []
        for stage in (step.stage for step in self.plan if step.stage.cached):
            if stage.produces is Kind.RECORDS:
                text = beside.format_records(TuningResult.read(artifacts[stage.name].path))
                records.write_text(text, encoding="utf-8")
                stages.append(Replay(records=records))
            else:
                stages.append(stage)
        return stages

    def _rebuild_stages(self, plan: Plan, executor: Executor, name: str, build: Digests) -> None:
        """Run a stage at a time, so that its digests are known even if a later stage fails."""
        for count, step in enumerate(plan, 1):
            self.emit(Progress(stage=STAGE, message=f"{name} build: {step.name}"))
            artifact = executor.run(plan[:count])[step.name]
            if _is_compared(artifact):
                build[step.name] = _digest_files(artifact)


def _is_compared(artifact: Artifact) -> bool:
    return artifact.kind is not Kind.REPORT


def _digest_files(artifact: Artifact) -> dict[str, str]:
    return {name: _digest_file(artifact.path / name) for name, _ in files.walk(artifact.path)}


def _digest_file(path: Path) -> str:
    if path.name != BuiltLibrary.FILE:
        return files.sha256(path)
    library = BuiltLibrary.read(path.parent)
    return digest_json(library.model_dump(mode="json", exclude={"tasks": {"__all__": _WENT}}))


def _list_differences(builds: Sequence[Digests]) -> list[str]:
    """Describe each file that differs between the builds that completed its stage."""
    differences = []
    for stage in builds[0]:
        stage_digests = [build[stage] for build in builds if stage in build]
        for name in sorted({name for digests in stage_digests for name in digests}):
            digests = [build.get(name, "nothing")[:12] for build in stage_digests]
            if len(set(digests)) > 1:
                again = ", then ".join(digests[1:])
                differences.append(f"{stage}: {name}: {digests[0]}, built again {again}")
    return differences


def _build_gate_error(differences: Sequence[str]) -> GateError:
    first = differences[0].split(":", 1)[0]
    omission = [f"and {len(differences) - _SHOWN} more"] if len(differences) > _SHOWN else []
    lines = "\n  ".join([*differences[:_SHOWN], *omission])
    return GateError(f"not reproducible: {first!r} is the first stage that differs\n  {lines}")
