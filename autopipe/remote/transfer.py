"""Transfer all entries of a store to a remote, or back. All functions raise StoreError."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from autopipe.artifacts.tuning import RECORDS, read_records
from autopipe.config.problem import format_value
from autopipe.errors import PackageError
from autopipe.records.times import list_untrue_times
from autopipe.remote.courier import AbsentError, DamagedError
from autopipe.remote.depot import Depot
from autopipe.store import files
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.canonical import Document
from autopipe.store.entry import Entry
from autopipe.store.gc import list_entries
from autopipe.store.store import Store
from autopipe.tasks.task import Task, read_tasks

Warn = Callable[[str], None]

Inspect = Callable[[Path], None]
"""Raises ValueError or OSError for a folder that is no valid artifact of a stage."""

UNSEEN: Final[Mapping[str, Inspect]] = MappingProxyType({})
"""Checks nothing."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a transfer."""

    entries: int
    """Number of transferred entries."""
    bytes: int
    """Size of their artifacts."""
    known: int
    """Number of entries that existed before."""


def push_entries(store: Store, depot: Depot, private: Collection[str], warn: Warn) -> Moved:
    """Upload all sound entries to a remote, except those of `private` stages."""
    depot.check(make=True)
    remote_keys = depot.actions()
    sizes, known_count = [], 0
    for key, entry in list_entries(store).items():
        if entry.action["stage"] in private:
            continue
        if key in remote_keys:
            known_count += 1
        elif store.lookup(key, warn) is not None:
            depot.send(key, entry, store.object(entry.digest))
            sizes.append(entry.size)
    return Moved(len(sizes), sum(sizes), known_count)


def pull_entries(
    store: Store,
    depot: Depot,
    private: Collection[str],
    warn: Warn,
    inspect: Mapping[str, Inspect] = UNSEEN,
) -> Moved:
    """Download all sound entries of a remote, except those of `private` stages.

    `inspect` checks artifacts, by the name of the stage.
    """
    depot.check(make=False)
    sizes, known_count = [], 0
    for key in depot.actions():
        if store.lookup(key, warn) is not None:
            known_count += 1
            continue
        try:
            entry = depot.entry(key)
            if entry.action["stage"] not in private:
                bring(store, depot, entry, key, inspect)
                sizes.append(entry.size)
        except AbsentError:  # swept since it was listed
            continue
        except DamagedError as error:
            warn(f"{error}; left out")
    return Moved(len(sizes), sum(sizes), known_count)


def bring(
    store: Store, depot: Depot, entry: Entry, key: str, inspect: Mapping[str, Inspect]
) -> Artifact:
    """Download one entry into the store, and return its artifact."""
    action: Document = entry.action
    out = store.out()
    try:
        depot.fetch(entry, out)
        _inspect_artifact(out, entry, inspect)
        if entry.kind is Kind.RECORDS:
            _check_times(store, action, out, key)
        return store.commit(key, action, entry.kind, out)
    finally:
        with files.wrap_os_errors(out):
            files.remove(out)


def _inspect_artifact(out: Path, entry: Entry, inspect: Mapping[str, Inspect]) -> None:
    """Raise DamagedError for an invalid artifact, which could break later stages."""
    look = inspect.get(entry.action["stage"])
    try:
        if look is not None:
            look(out)
    except (OSError, ValueError, PackageError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        stage = format_value(entry.action["stage"])
        raise DamagedError(
            f"object {entry.digest[:16]} is not what stage {stage} makes: "
            f"{format_value(reason, 200)}"
        ) from None


def _check_times(store: Store, action: Document, out: Path, key: str) -> None:
    """Raise DamagedError for records with times below their lower bound."""
    if not (out / RECORDS).is_file():
        return
    try:
        target = action.get("facts", {}).get("target", {})
        untrue = list_untrue_times(
            read_records(out).values(), _read_tuned_tasks(store, action), target
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"action {key[:16]} is damaged: its records: {error}") from error
    if untrue:
        raise DamagedError(f"action {key[:16]}: {'; '.join(untrue.values())}")


def _read_tuned_tasks(store: Store, action: Document) -> tuple[Task, ...]:
    """Return the tuned tasks, if this store has them."""
    name = str(action.get("inputs", {}).get("tasks", ""))
    folder = store.object(name)
    is_there = name.isalnum() and (folder / "tasks.json").is_file()
    return read_tasks(folder) if is_there else ()
