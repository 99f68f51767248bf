"""The lock of a run: check whether it is current, replay its schedules, and write it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from autopipe.artifacts.build_results import read_build_results
from autopipe.artifacts.tuning import TuningResult
from autopipe.config.pipeline import Pipeline
from autopipe.environment.environment import Environment
from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError, LockError, StoreError
from autopipe.lock import file as files
from autopipe.lock import records as beside
from autopipe.lock import text
from autopipe.lock.document import Lock
from autopipe.lock.mode import Mode
from autopipe.lock.outline import LockOutline, list_differences
from autopipe.lock.recognize import find_records_path, lock_of
from autopipe.lock.replay import Replay
from autopipe.pipeline.forecast import NEVER, Outlook
from autopipe.pipeline.keys import build_action
from autopipe.pipeline.stage import Stage
from autopipe.stages.tune import TuneStage
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.canonical import digest_json
from autopipe.store.content import TreeDigests
from autopipe.store.store import Store
from autopipe.tasks.task import read_tasks

if TYPE_CHECKING:
    from autopipe.signing.signers import Signers


_ASIDE: Final = (
    "pipeline:", "configuration.verify", "configuration.package", "stages.verify",
    "stages.package", "versions.packages.", "versions.reference.",
)  # fmt: skip
"""Prefixes of differences without effect on tuning: the lock is rewritten, nothing is tuned."""

_KEPT: Final = (
    *_ASIDE, "sources.", "configuration.model", "configuration.layout", "configuration.fusion",
    "configuration.tasks", "stages.import", "stages.optimize", "stages.lower", "stages.tasks",
)  # fmt: skip
"""Prefixes of differences under which earlier schedules remain valid choices."""

_RECORDS: Final = "records"

_TOLD: Final = 3
"""Maximum number of differences in a warning."""


class Locking(NamedTuple):
    """The lock of one run."""

    path: Path
    mode: Mode
    lock: Lock | None = None
    outline: LockOutline | None = None
    """The present values of all that a lock records; None where unknown or not asked."""
    differs: tuple[str, ...] = field(default=())
    """Why the lock is not current."""
    checked: Path | None = None
    """A copy of the records, whose signature was verified; None without signers."""

    @property
    def records(self) -> Path:
        """Return the path from which the records are read."""
        return self.checked or find_records_path(self.path)

    @property
    def current(self) -> bool:
        """Whether the lock was written for the present inputs."""
        return self.lock is not None and self.outline is not None and not self.differs

    def stages(self, stages: Iterable[Stage], force: Iterable[str] = ()) -> tuple[Stage, ...]:
        """Replace tuning by a replay where the lock allows; omit measuring stages when frozen."""
        replaced_stages = (self._replace_tuning(stage, frozenset(force)) for stage in stages)
        return tuple(
            stage for stage in replaced_stages if stage.cached or self.mode is not Mode.FROZEN
        )

    def environment(self, environment: Environment) -> Environment:
        """Return the environment of the run; in frozen mode, its target is that of the lock."""
        if self.mode is Mode.FROZEN and self.lock is not None:
            from autopipe.lock.pinned import Pinned

            return Pinned(environment, self.lock.target)
        return environment

    def describe_staleness(self) -> str:
        """Build the warning for a stale lock; empty if it is current or the mode reports it."""
        if self.mode is not Mode.AUTO or self.lock is None or not self.differs:
            return ""
        hidden_count = len(self.differs) - _TOLD
        reasons = "; ".join(
            [*self.differs[:_TOLD], *([f"and {hidden_count} more"] if hidden_count > 0 else [])]
        )
        return f"{self.path} is not current and will be written anew: {reasons}"

    def explain(self, outlook: Outlook) -> Outlook:
        """Add the reason why a stale lock cannot replace tuning that never ran here."""
        if outlook.stage == TuneStage.name and outlook.why == (NEVER,) and self.differs:
            return outlook._replace(why=self.differs)
        return outlook

    def require(self, extract_tasks: Callable[[], Path | None]) -> None:
        """Raise LockError in a strict mode unless the lock is current.

        `extract_tasks` returns the folder of the current tasks, None for a run that ends before
        they are known: the message then lacks the tasks that do not match the records.
        """
        if not self.mode.strict or self.current:
            return
        if self.lock is None:
            raise LockError(
                f"{self.path}: is not there; `autopipe run` without --{self.mode} writes it"
            )
        misfits: list[str] = []
        sound = not any(text.startswith(_RECORDS) for text in self.differs)
        if self.lock.records is not None and sound:
            tuning_result = beside.read_records(files.read_text(self.records), self.records)
            tasks = extract_tasks()
            misfits = (
                beside.list_task_mismatches(tuning_result, read_tasks(tasks))
                if tasks is not None
                else []
            )
        reasons = "\n  ".join([*self.differs, *misfits])
        raise LockError(
            f"{self.path}: is not current; `autopipe run` or `run --update` makes it so\n"
            f"  {reasons}"
        )

    def check_build(self, artifacts: Mapping[str, Artifact], contents: TreeDigests) -> None:
        """Raise LockError if a build differs from the tasks and digests of the lock."""
        if not self.mode.strict or self.lock is None or "build" not in artifacts:
            return
        now = self._fill_lock(artifacts, contents)
        changed_tasks = list_differences(
            *({t.name: t.choice for t in lock.tasks} for lock in (self.lock, now))
        )
        wrong = [f"tasks.{text}" for text in changed_tasks]
        has_package = any(artifact.kind is Kind.PACKAGE for artifact in artifacts.values())
        locked_artifacts = {
            n: d for n, d in self.lock.artifacts.items() if has_package or n in now.artifacts
        }
        wrong += list_differences({"artifacts": locked_artifacts}, {"artifacts": now.artifacts})
        if wrong:
            reasons = "\n  ".join(wrong)
            raise LockError(f"{self.path}: the build differs from the lock\n  {reasons}")

    def write(self, artifacts: Mapping[str, Artifact], store: Store) -> Path | None:
        """Write the lock of a build if it has changed; return its path if it was written.

        Raises StoreError.
        """
        if self.mode.strict or self.outline is None or "build" not in artifacts:
            return None
        lock = self._fill_lock(artifacts, store.contents)
        if self.lock == lock and not self.differs:
            return None
        tuning_result = read_build_results(artifacts).tuning
        try:
            files.write_lock(
                self.path,
                text.format_lock(lock),
                beside.format_records(tuning_result) if tuning_result else None,
            )
        except StoreError as error:
            raise StoreError(f"{error}; `run --no-lock` does without a lock") from error
        if tuning_result is not None:
            self._commit_replay(tuning_result, artifacts["tasks"].digest, store)
        return self.path

    def _commit_replay(self, tuning_result: TuningResult, tasks: str, store: Store) -> None:
        """Store the result of a replay of this lock, so that the next run is a cache hit."""
        stage = Replay(records=find_records_path(self.path))
        assert self.outline is not None  # noqa: S101 - the caller has seen it
        facts = {Facet.TARGET: self.outline.target}
        document = build_action(stage, {"tasks": tasks}, facts, store.contents)
        out = store.out()
        tuning_result.write(out)
        store.commit(digest_json(document), document, Kind.RECORDS, out)

    def _fill_lock(self, artifacts: Mapping[str, Artifact], contents: TreeDigests) -> Lock:
        assert self.outline is not None  # noqa: S101 - both callers have seen it
        return self.outline.to_lock(artifacts, contents)

    def _replace_tuning(self, stage: Stage, force: frozenset[str]) -> Stage:
        if not isinstance(stage, TuneStage) or self.lock is None or self.lock.records is None:
            return stage
        aside = self.outline is not None and all(d.startswith(_ASIDE) for d in self.differs)
        if aside and (self.mode.strict or stage.name not in force):
            return Replay(records=self.records)
        if self.mode is Mode.UPDATE and all(d.startswith(_KEPT) for d in self.differs):
            from autopipe.lock.retune import Retune

            return Retune(**dict(stage), records=self.records)
        return stage


def begin(  # noqa: PLR0913, PLR0917 - all that a lock is about
    file: Path,
    pipeline: Pipeline,
    stages: Iterable[Stage],
    environment: Environment,
    contents: TreeDigests,
    mode: Mode,
    signers: "Signers | None" = None,
    *,
    build: str | None = None,
    ask: bool,
) -> Locking:
    """Read the lock of a pipeline file, or of one of its builds, and compare it with the present.

    Without `ask`, facts that only TVM knows are left unknown. A lock without a signature of one of
    the `signers` is not parsed. Raises LockError, ConfigError, SetupError.
    """
    path = lock_of(file, build)
    locking = Locking(path, mode)
    if mode is Mode.OFF:
        return locking
    sibling = path.with_suffix(file.suffix)
    if build is not None and sibling.exists():
        raise ConfigError(f"{path} is the lock of {sibling}: give build {build} another name")
    if path.exists() or path.is_symlink():
        lock_and_copy = files.read_followed(path, signers, contents.tmp)
        locking = locking._replace(lock=lock_and_copy[0], checked=lock_and_copy[1])
    if locking.lock is None and mode.strict:
        return locking
    environment = locking.environment(environment)
    outline = LockOutline.of(pipeline, stages, environment, contents, ask=ask)
    if locking.lock is None or outline is None:
        return locking._replace(outline=outline)
    differs = outline.differences(locking.lock)
    if mode is Mode.FROZEN:  # where the target of the run is the lock's own
        from autopipe.lock.pinned import list_contradictions

        differs += list_contradictions(pipeline.target, locking.lock.target)
    if signers is None:
        differs += _list_record_problems(path, locking.lock, contents)
    return locking._replace(outline=outline, differs=tuple(differs))


def _list_record_problems(path: Path, lock: Lock, contents: TreeDigests) -> list[str]:
    """List problems of the records beside a lock. Raises LockError if they are unreadable."""
    if lock.records is None:
        return []
    records = find_records_path(path)
    if not records.is_file():
        return [f"{_RECORDS}: {records} is not there"]
    (file,) = contents.manifest(records.resolve())
    if file.sha256 == lock.records:
        return []
    beside.read_records(files.read_text(records), records)  # raises with the line of damage
    return [f"{_RECORDS}: locked {lock.records[:12]}, now {file.sha256[:12]}"]
