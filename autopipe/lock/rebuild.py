"""Whether a build comes out the same: made twice again, elsewhere, and compared file by file."""

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
from autopipe.pipeline.events import Event, Progress, StageFailed, StageFinished, StageStarted
from autopipe.pipeline.executor import Executor
from autopipe.pipeline.isolate import Isolate
from autopipe.pipeline.plan import Plan, build_plan
from autopipe.pipeline.stage import Stage
from autopipe.store import files
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.canonical import digest_json
from autopipe.store.store import Store, open_store

STAGE: Final = "rebuild"
"""What reporters call the check."""

_BUILDS: Final = ("first", "second")
_WENT: Final = {"checked", "unchecked", "reason", "rejected", "failures"}
"""What `library.json` tells of how checking a task went; some of it names folders of the store."""

_SHOWN: Final = 40
"""Files that are named at most."""

Digests = dict[str, dict[str, str]]
"""The sha256 of each file, by stage and name."""


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """A run that is made again."""

    plan: Plan
    store: Store
    environment: Environment
    isolate: Callable[..., AbstractContextManager[Isolate]]
    """Starts what runs the stages of one build; takes `tmp`, a folder for temporary files."""
    emit: Callable[[Event], None]

    def check(self, artifacts: Mapping[str, Artifact]) -> None:
        """Build twice in new stores and processes, with the records that tuning gave.

        Reports are left out, they tell of one run, and so is all that is measured. Raises
        GateError, which names each file that differs, those of the first stage first.
        """
        start = time.monotonic()
        self.emit(StageStarted(stage=STAGE))
        made = {
            name: _digest_files(artifact)
            for name, artifact in artifacts.items()
            if _is_compared(artifact)
        }
        try:
            self._compare_builds(made, build_plan(self._list_rebuilt_stages(artifacts)))
        except AutopipeError as error:
            failed = StageFailed(stage=STAGE, error=str(error), exit_code=error.exit_code)
            self.emit(failed)
            raise
        number = sum(map(len, made.values()))
        self.emit(
            StageFinished(
                stage=STAGE,
                digest=digest_json(made),
                seconds=time.monotonic() - start,
                summary=f"{len(made)} artifacts, {number} files, all the same when built again",
            )
        )

    def _compare_builds(self, made: Digests, plan: Plan) -> None:
        builds = [made]
        try:
            for name in _BUILDS:
                builds.append({})
                root = self.store.tmp / name
                with open_store(root) as own, self.isolate(tmp=own.tmp) as runner:
                    executor = Executor(own, self.environment, runner, lambda _: None)
                    self._rebuild_stages(plan, executor, name, builds[-1])
                files.remove(root)
        except AutopipeError as error:
            if differences := _list_differences(
                builds
            ):  # what is built from something else may well fail
                raise _build_gate_error(differences) from error
            raise
        if differences := _list_differences(builds):
            raise _build_gate_error(differences)

    def _list_rebuilt_stages(self, artifacts: Mapping[str, Artifact]) -> list[Stage]:
        """Return what is built again: the records come from a file, as they would from a lock."""
        records = self.store.tmp / "rebuild.records.jsonl"
        stages: list[Stage] = []
        for stage in (step.stage for step in self.plan.steps if step.stage.cached):
            if stage.produces is Kind.RECORDS:
                text = beside.format_records(TuningResult.read(artifacts[stage.name].path))
                records.write_text(text, encoding="utf-8")
                stages.append(Replay(records=records))
            else:
                stages.append(stage)
        return stages

    def _rebuild_stages(self, plan: Plan, executor: Executor, name: str, build: Digests) -> None:
        """Run a stage at a time, so that what was made is known even where the next one fails."""
        for count, step in enumerate(plan.steps, 1):
            self.emit(Progress(stage=STAGE, message=f"{name} build: {step.name}"))
            artifact = executor.run(Plan(plan.steps[:count]))[step.name]
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
    """Describe each file that is not the same in all builds that came as far as its stage."""
    differences = []
    for stage in builds[0]:
        made = [build[stage] for build in builds if stage in build]
        for name in sorted({name for digests in made for name in digests}):
            digests = [build.get(name, "nothing")[:12] for build in made]
            if len(set(digests)) > 1:
                again = ", then ".join(digests[1:])
                differences.append(f"{stage}: {name}: {digests[0]}, built again {again}")
    return differences


def _build_gate_error(differences: Sequence[str]) -> GateError:
    first = differences[0].split(":", 1)[0]
    more = [f"and {len(differences) - _SHOWN} more"] if len(differences) > _SHOWN else []
    told = "\n  ".join([*differences[:_SHOWN], *more])
    return GateError(f"not reproducible: {first!r} is the first stage that differs\n  {told}")
