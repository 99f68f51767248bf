"""Garbage collection and verification of a remote. All functions raise StoreError."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from autopipe.remote.courier import AbsentError, DamagedError, RemoteError
from autopipe.remote.depot import Depot

_DAY: Final = 86_400.0
"""Seconds. The action of an object younger than a day may not be uploaded yet."""


@dataclass(frozen=True, slots=True)
class SweptDepot:
    """Numbers of deleted entries and objects."""

    entries: int
    objects: int


def sweep_depot(depot: Depot, *, keep_days: float) -> SweptDepot:
    """Delete entries older than `keep_days`, and unreferenced objects.

    Tuning records stay. A concurrent run that uses a deleted entry has a cache miss.
    """
    depot.check(make=False)
    now = depot.now()
    actions, objects = depot.actions(), depot.objects()
    old = {key for key, at in actions.items() if now - (at or now) > keep_days * _DAY}
    for key in old:
        depot.drop(key)
    kept_digests = {
        digest for key in actions.keys() - old for digest in _read_entry_digest(depot, key)
    }
    loose = {name for name, at in objects.items() if now - (at or now) > _DAY} - kept_digests
    for digest in loose:
        depot.drop_object(digest)
    for name, at in depot.parts().items():
        if now - (at or now) > _DAY:
            depot.courier.remove(name)
    return SweptDepot(len(old), len(loose))


def verify_depot(depot: Depot) -> tuple[int, list[str]]:
    """Check every byte; return the number of sound entries, and the errors of the others.

    A damaged entry is deleted with its object, so that the next push uploads it again.
    """
    depot.check(make=False)
    sound, wrong = 0, []
    for key in depot.actions():
        try:
            _read_whole(depot, key)
        except AbsentError:
            continue
        except DamagedError as error:
            wrong.append(f"{error}; {_delete_entry(depot, key)}")
        else:
            sound += 1
    return sound, wrong


def _read_whole(depot: Depot, key: str) -> None:
    with TemporaryDirectory(dir=depot.tmp) as out:
        depot.fetch(depot.entry(key), Path(out))


def _read_entry_digest(depot: Depot, key: str) -> Iterator[str]:
    try:
        yield depot.entry(key).digest
    except (AbsentError, DamagedError):
        return


def _delete_entry(depot: Depot, key: str) -> str:
    try:
        digests = list(_read_entry_digest(depot, key))
        depot.drop(key)
        for digest in digests:
            depot.drop_object(digest)
    except RemoteError as error:
        return f"cannot be deleted: {error}"
    return "deleted"
