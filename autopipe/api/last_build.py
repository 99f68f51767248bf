"""The last build of a pipeline file: its artifacts, and its differences from the one before."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError

from autopipe.artifacts.library import BuiltLibrary, LibraryTask
from autopipe.config.load import load
from autopipe.config.pipeline import Pipeline
from autopipe.errors import ConfigError, StoreError
from autopipe.foreign import MalformedError
from autopipe.pipeline.explain import list_changes
from autopipe.pipeline.history import History
from autopipe.report.document import SinceLastBuild, TaskDifference
from autopipe.store.artifact import Artifact
from autopipe.store.canonical import Document
from autopipe.store.entry import Entry
from autopipe.store.locks import FOR_EVER, Patience
from autopipe.store.store import find_default_root, open_store

_PATIENCE: Final = Patience(lambda _: None, 1.0)
"""Seconds to wait for an exclusive lock of the store; a report is no reason to wait longer."""


@dataclass(frozen=True, slots=True)
class RememberedBuild:
    """A build in the history of a pipeline file."""

    actions: Mapping[str, Document]
    """The inputs and parameters of each stage, by kind of stage."""
    tasks: Mapping[str, LibraryTask]
    """The tasks of the library, by workload."""
    configuration: Document | None = None
    """The pipeline file with its overrides; None where the store does not have it."""


@dataclass(frozen=True, slots=True)
class BuildOrigin:
    """The sources of a build, and its differences from the previous one."""

    sources: Mapping[str, str]
    """Digests of the files that its stages read, by stage and name."""
    since: SinceLastBuild | None
    """The differences from the previous build; None where that is unknown."""


def load_last(
    file: Path, overrides: Sequence[str], build: str | None, store: Path | None
) -> Pipeline:
    """Load the pipeline that the last build of a file was run with.

    With overrides, or without a build in the store, it is the current file with the overrides.
    Raises ConfigError.
    """
    pipeline = load(file, overrides, build)
    root = store or find_default_root()
    if overrides or not (root / "runs").is_dir():
        return pipeline
    with open_store(root, _PATIENCE) as opened_store:
        configuration = History.of(opened_store, file, pipeline.name, build).configuration
    with suppress(ValidationError):  # of another release
        return pipeline if configuration is None else Pipeline.model_validate(configuration)
    return pipeline


class LastBuild(NamedTuple):
    """The last build of a pipeline file; it need not have been verified."""

    pipeline: Pipeline
    action: Document
    """The inputs and parameters of *build*."""
    artifacts: Mapping[str, Path]
    """The artifacts of *build* and of its inputs, by stage."""


def find_last_build(
    file: Path, *, store: Path | None, overrides: Sequence[str] = (), build: str | None = None
) -> LastBuild:
    """Find the last build of a file. Raises ConfigError for one that is not in the store."""
    pipeline = load_last(file, overrides, build, store)
    with open_store(store or find_default_root(), FOR_EVER) as opened_store:
        built = look_up_build(History.of(opened_store, file, pipeline.name, build))
        if built is None:
            raise build_missing_error(file)
        artifact, entry = built
        inputs = {stage: opened_store.object(str(n)) for stage, n in entry.action["inputs"].items()}
    if not all(path.is_dir() for path in inputs.values()):
        raise build_missing_error(file)
    return LastBuild(pipeline, entry.action, {**inputs, "build": artifact.path})


def look_up_build(history: History) -> tuple[Artifact, Entry] | None:
    """Look up the last build of a history in its store."""
    key = history.last_key("build")
    artifact = None if key is None else history.store.lookup(key, lambda _: None)
    entry = None if key is None else history.store.entry(key)
    return None if artifact is None or entry is None else (artifact, entry)


def build_missing_error(file: Path) -> ConfigError:
    """Build the error for a pipeline file without a build in the store."""
    return ConfigError(f"{file} has no build in the store; run `autopipe run {file}` first")


def find_origin(
    root: Path, file: Path, build: str | None, digests: Mapping[str, str]
) -> BuildOrigin:
    """Find the sources of the last build of a pipeline file, and its differences from the previous.

    `digests` are those of its artifacts, by stage.
    """
    unknown_origin = BuildOrigin({}, None)
    if not (root / "runs").is_dir():
        return unknown_origin
    with suppress(StoreError, MalformedError, OSError), open_store(root, _PATIENCE) as store:
        history = History.of(store, file, "", build)
        since = None
        if "build" in digests:
            since = compare_builds(_read_build(history.previous()), _read_build(history))
        return BuildOrigin(dict(_find_sources(history, digests)), since)
    return unknown_origin


def _find_sources(history: History, digests: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key in history.last_keys():
        entry = history.store.entry(key)
        if entry is not None and digests.get(stage := str(entry.action["stage"])) == entry.digest:
            for name, digest in entry.action["sources"].items():
                yield f"{stage}.{name}", digest


def _read_build(history: History) -> RememberedBuild | None:
    """Read the last build of a history; None where the store has none."""
    key = history.last_key("build")
    entry = None if key is None else history.store.entry(key)
    if entry is None:
        return None
    library = BuiltLibrary.read(history.store.object(entry.digest))
    tasks = {task.workload: task for task in library.tasks}
    return RememberedBuild(history.last_actions(), tasks, history.configuration)


def compare_builds(
    old: RememberedBuild | None, new: RememberedBuild | None
) -> SinceLastBuild | None:
    """List the differences between two builds; None where one of them is unknown."""
    if old is None or new is None:
        return None
    fields = _list_changed_fields(old.configuration, new.configuration)
    stages = dict(
        _list_changed_stages(old.actions, new.actions, {_shorten_change(line) for line in fields})
    )
    workloads = dict.fromkeys([*new.tasks, *old.tasks])
    pairs = ((old.tasks.get(name), new.tasks.get(name)) for name in workloads)
    differing = (
        _build_difference(*pair)
        for pair in pairs
        if _list_decisions(pair[0]) != _list_decisions(pair[1])
    )
    return SinceLastBuild(fields=fields, stages=stages, tasks=tuple(differing))


def _list_changed_fields(old: Document | None, new: Document | None) -> tuple[str, ...]:
    return () if old is None or new is None else tuple(list_changes(old, new))


def _list_changed_stages(
    old: Mapping[str, Document], new: Mapping[str, Document], field_changes: set[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the changed inputs and parameters of stages, each at the first stage that has it.

    Changes among `field_changes` of the pipeline file are omitted.
    """
    changes_by_stage = {
        kind: list_changes(old[kind], new[kind]) for kind in old.keys() & new.keys()
    }
    results = {
        f"the result of {kind.split()[0]} changed"
        for kind, lines in changes_by_stage.items()
        if lines
    }
    for kind in sorted(changes_by_stage):
        new_changes = (line for line in changes_by_stage[kind] if line not in results)
        own_changes = [
            line
            for line in new_changes
            if not (_is_parameter(line) and _shorten_change(line) in field_changes)
        ]
        if own_changes:
            yield kind.split()[0], tuple(own_changes)


def _is_parameter(change: str) -> bool:
    return change.startswith("params.")


def _shorten_change(change: str) -> str:
    """Shorten the name in a change to its last part: `rtol changed from 1 to 2`."""
    name, _, rest = change.partition(" ")
    return f"{name.rpartition('.')[2]} {rest}"


def _list_decisions(task: LibraryTask | None) -> tuple[object, ...]:
    return () if task is None else (task.engine, task.implementation, task.seconds)


def _build_difference(old: LibraryTask | None, new: LibraryTask | None) -> TaskDifference:
    either = new or old
    assert either is not None  # noqa: S101 -- one of them is there
    return TaskDifference(
        name=either.name, old=_format_schedule(old), new=_format_schedule(new),
        old_seconds=old and old.seconds, new_seconds=new and new.seconds,
    )  # fmt: skip


def _format_schedule(task: LibraryTask | None) -> str | None:
    return None if task is None else f"{task.engine} on {task.implementation}"
