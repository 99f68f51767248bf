"""Everything of a store to a remote, and the other way. All of it raises StoreError."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from autopipe.pipeline import files
from autopipe.pipeline.canonical import Document
from autopipe.pipeline.entry import Entry
from autopipe.pipeline.gc import entries
from autopipe.pipeline.stage import Artifact
from autopipe.pipeline.store import Store
from autopipe.remote.courier import AbsentError, DamagedError
from autopipe.remote.depot import Depot

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Moved:
    """What a transfer did."""

    entries: int
    """Entries that were moved."""
    bytes: int
    """How large their artifacts are."""
    known: int
    """Entries that were there already."""


def push(store: Store, depot: Depot, private: Collection[str], warn: Warn) -> Moved:
    """Bring all sound entries to a remote, but not those of `private` stages."""
    depot.check(make=True)
    there = depot.actions()
    sizes, known = [], 0
    for key, entry in entries(store).items():
        if entry.action["stage"] in private:
            continue
        if key in there:
            known += 1
        elif store.lookup(key, warn) is not None:
            depot.send(key, entry, store.object(entry.digest))
            sizes.append(entry.size)
    return Moved(len(sizes), sum(sizes), known)


def pull(store: Store, depot: Depot, private: Collection[str], warn: Warn) -> Moved:
    """Bring all sound entries of a remote, but not those of `private` stages."""
    depot.check(make=False)
    sizes, known = [], 0
    for key in depot.actions():
        if store.lookup(key, warn) is not None:
            known += 1
            continue
        try:
            entry = depot.entry(key)
            if entry.action["stage"] not in private:
                bring(store, depot, entry, key)
                sizes.append(entry.size)
        except AbsentError:  # swept since it was listed
            continue
        except DamagedError as error:
            warn(f"{error}; left out")
    return Moved(len(sizes), sum(sizes), known)


def bring(store: Store, depot: Depot, entry: Entry, key: str) -> Artifact:
    """Bring one entry into the store, and return its artifact."""
    action: Document = entry.action
    out = store.out()
    try:
        depot.fetch(entry, out)
        return store.commit(key, action, entry.kind, out)
    finally:
        with files.guard(out):
            files.remove(out)
