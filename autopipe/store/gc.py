"""What keeps a store small: entries nobody used for long, and what dead runs left, are deleted."""

import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autopipe.errors import ConfigError, StoreError
from autopipe.store import files, locks
from autopipe.store.entry import Entry, NewerError
from autopipe.store.store import Store

_DAY: Final = 86_400 * 10**9
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class SweptStore:
    """What a sweep deleted."""

    entries: int
    bytes: int


def parse_size(text: str) -> int:
    """Read a size such as `500M` or `20G`, in bytes. Raises ConfigError."""
    match = re.fullmatch(r"([0-9]+)([KMGT]?)", text)
    if match is None:
        raise ConfigError(f"{text!r} is not a size; write 500M or 20G")
    return int(match[1]) * _UNITS[match[2]]


def collect_garbage(
    store: Store, *, keep_days: float, max_size: int | None = None, dry_run: bool = False
) -> SweptStore:
    """Delete entries not used for `keep_days`, then the least used beyond `max_size` bytes.

    What a run that is still going has used or made is kept, and what a later release wrote. Damaged
    records and objects that no record names go as well. With `dry_run`, nothing is deleted.
    """
    with files.wrap_os_errors(store.root):
        with locks.hold_lock(store.gate, store.patience, alone=True):
            cutoff = time.time_ns() - int(keep_days * _DAY)
            live = locks.find_oldest_lease(store.tmp)
            if live is not None and live > time.time_ns():
                live = 0  # the clock went back meanwhile: nobody knows what that run has used
            kept = _choose_kept(list_entries(store), cutoff, live, max_size)
            newer = _list_newer_digests(store)
            doomed = _list_unreachable(
                store, {*newer.values(), *(e.digest for e in kept.values())}, live
            )
            freed = sum(map(_measure_size, doomed))
            gone = [
                path
                for path in (store.root / "actions").glob("*.json")
                if path.stem not in kept and path.stem not in newer
            ]
            if dry_run:
                return SweptStore(len(gone), freed)
            for number, path in enumerate(doomed):
                if path.is_dir() and not path.is_symlink():
                    path.chmod(0o700)
                path.rename(store.tmp / f"doomed-{number}")
                store.contents.forget(path)
            for path in gone:
                files.remove(path)
            _sweep_leftovers(store, kept, cutoff)
        for number in range(len(doomed)):
            files.remove(store.tmp / f"doomed-{number}")
    return SweptStore(len(gone), freed)


def verify_store(store: Store) -> tuple[int, list[str]]:
    """Read every byte again; return how many entries are sound, and what is wrong with others.

    Damaged objects are moved to quarantine.
    """
    damages = [
        store.damage(key) for key in store.actions() if key not in _list_newer_digests(store)
    ]
    return damages.count(None), [text for text in damages if text is not None]


def list_entries(store: Store) -> dict[str, Entry]:
    """Return all readable records by key."""
    by_key = {}
    for key in store.actions():
        try:
            entry = store.entry(key)
        except StoreError:
            continue
        if entry is not None:
            by_key[key] = entry
    return by_key


def _choose_kept(
    by_key: dict[str, Entry], cutoff: int, live: int | None, max_size: int | None
) -> dict[str, Entry]:
    """Choose what stays: what live runs may hold, and the recently used as far as they fit."""
    kept: dict[str, Entry] = {}
    sizes: dict[str, int] = {}
    for key, entry in sorted(by_key.items(), key=lambda item: -item[1].used):
        total = sum(sizes.values()) + (0 if entry.digest in sizes else entry.size)
        pinned = live is not None and entry.used >= live
        fits = max_size is None or total <= max_size
        if pinned or (entry.used >= cutoff and fits):
            kept[key] = entry
            sizes[entry.digest] = entry.size
    return kept


def _list_newer_digests(store: Store) -> dict[str, str]:
    """Return the keys of records that a later release wrote, with the digests they name."""
    newer_ones = {}
    for key in store.actions():
        try:
            store.entry(key)
        except NewerError as newer:
            newer_ones[key] = newer.digest
        except StoreError:
            continue
    return newer_ones


def _list_unreachable(store: Store, reachable: Collection[str], live: int | None) -> list[Path]:
    """Return the objects nothing that stays needs; one younger than a live run may be its own."""
    return [
        path
        for path in (store.root / "objects").iterdir()
        if path.name not in reachable and (live is None or path.lstat().st_ctime_ns < live)
    ]


def _measure_size(tree: Path) -> int:
    """Return the bytes of an object; one that holds what no stage leaves has none that count."""
    try:
        return sum(status.st_size for _, status in files.walk(tree))
    except files.IrregularError:
        return 0


def _sweep_leftovers(store: Store, kept: Iterable[str], cutoff: int) -> None:
    """Delete old scratch, logs, quarantine, fingerprints and histories, and locks nobody needs."""
    for folder in ("work", "logs", "quarantine", "fingerprints", "runs"):
        for path in (store.root / folder).iterdir():
            lock = store.root / "locks" / path.name
            busy = folder == "work" and lock.exists() and not locks.is_free(lock)
            if path.lstat().st_mtime_ns < cutoff and not busy:
                files.remove(path)
    needed = {*kept, store.gate.name, *(path.name for path in (store.root / "work").iterdir())}
    for lock in (store.root / "locks").iterdir():
        if lock.name not in needed and locks.is_free(lock):
            files.remove(lock)
