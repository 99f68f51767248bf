"""The last build of a pipeline file, remembered before a run to compare with it."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autopipe.artifacts.library import BuiltLibrary, LibraryTask
from autopipe.errors import StoreError
from autopipe.foreign import MalformedError
from autopipe.pipeline.explain import changes
from autopipe.pipeline.history import History
from autopipe.report.document import SinceLastBuild, TaskDifference
from autopipe.store.canonical import Document
from autopipe.store.locks import Patience
from autopipe.store.store import open_store

_PATIENCE: Final = Patience(lambda _: None, 1.0)
"""Seconds to wait for whoever has the store for itself; a report is no reason to wait longer."""


@dataclass(frozen=True, slots=True)
class RememberedBuild:
    """What a pipeline file ran last."""

    actions: Mapping[str, Document]
    """By kind of stage; each is what the result of the stage depends on."""
    tasks: Mapping[str, LibraryTask]
    """Of the library, by workload."""


def remember_build(root: Path, file: Path, name: str, build: str | None) -> RememberedBuild | None:
    """Return the last build of a pipeline file; None where the store has none, or a damaged one."""
    if not (root / "runs").is_dir():
        return None
    with suppress(StoreError, MalformedError, OSError), open_store(root, _PATIENCE) as store:
        history = History.of(store, file, name, build)
        key = history.last_key("build")
        entry = None if key is None else store.entry(key)
        if entry is not None:
            library = BuiltLibrary.read(store.object(entry.digest))
            tasks = {task.workload: task for task in library.tasks}
            return RememberedBuild(history.last_actions(), tasks)
    return None


def compare_builds(
    old: RememberedBuild | None, new: RememberedBuild | None
) -> SinceLastBuild | None:
    """Return what differs; None where one of them is not known."""
    if old is None or new is None:
        return None
    stages = dict(_changed_stages(old.actions, new.actions))
    workloads = dict.fromkeys([*new.tasks, *old.tasks])
    pairs = ((old.tasks.get(name), new.tasks.get(name)) for name in workloads)
    differing = (_difference(*pair) for pair in pairs if _decisions(pair[0]) != _decisions(pair[1]))
    return SinceLastBuild(stages=stages, tasks=tuple(differing))


def _changed_stages(
    old: Mapping[str, Document], new: Mapping[str, Document]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what stages depend on and is other now, each where it is first seen."""
    told = {kind: changes(old[kind], new[kind]) for kind in old.keys() & new.keys()}
    results = {f"the result of {kind.split()[0]} changed" for kind, lines in told.items() if lines}
    for kind in sorted(told):
        if own := tuple(line for line in told[kind] if line not in results):
            yield kind.split()[0], own


def _decisions(task: LibraryTask | None) -> tuple[object, ...]:
    return () if task is None else (task.engine, task.implementation, task.seconds)


def _difference(old: LibraryTask | None, new: LibraryTask | None) -> TaskDifference:
    either = new or old
    assert either is not None  # noqa: S101 -- one of them is there
    return TaskDifference(
        name=either.name, old=_schedule(old), new=_schedule(new),
        old_seconds=old and old.seconds, new_seconds=new and new.seconds,
    )  # fmt: skip


def _schedule(task: LibraryTask | None) -> str | None:
    return None if task is None else f"{task.engine} on {task.implementation}"
