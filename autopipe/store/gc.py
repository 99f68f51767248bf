"""Garbage collection: deletes unused entries, and leftovers of dead runs."""

import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autopipe.errors import ConfigError, StoreError
from autopipe.store import files, locks
from autopipe.store.entry import Entry
from autopipe.store.store import Store

_DAY: Final = 86_400 * 10**9
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class SweptStore:
    """Number and size of deleted entries."""

    entries: int
    bytes: int


def parse_size(text: str) -> int:
    """Parse a size such as `500M` or `20G` to bytes. Raises ConfigError."""
    match = re.fullmatch(r"([0-9]+)([KMGT]?)", text)
    if match is None:
        raise ConfigError(f"{text!r} is not a size; write 500M or 20G")
    return int(match[1]) * _UNITS[match[2]]


def collect_garbage(
    store: Store, *, keep_days: float, max_size: int | None = None, dry_run: bool = False
) -> SweptStore:
    """Delete entries unused for `keep_days`, then those unused longest beyond `max_size` bytes.

    Entries of running runs are kept. Damaged records and unreferenced objects are deleted, too.
    With `dry_run`, nothing is deleted.
    """
    with files.wrap_os_errors(store.root):
        with locks.hold_lock(store.gate, store.patience, alone=True):
            cutoff = time.time_ns() - int(keep_days * _DAY)
            live = locks.find_oldest_lease(store.tmp)
            if live is not None and live > time.time_ns():
                live = 0  # the clock was set back: the entries used by that run are unknown
            kept_entries = _choose_kept(list_entries(store), cutoff, live, max_size)
            unreachable = _list_unreachable(store, {e.digest for e in kept_entries.values()}, live)
            freed_bytes = sum(map(_measure_size, unreachable))
            stale_records = [
                path
                for path in (store.root / "actions").glob("*.json")
                if path.stem not in kept_entries
            ]
            if dry_run:
                return SweptStore(len(stale_records), freed_bytes)
            for number, path in enumerate(unreachable):
                if path.is_dir() and not path.is_symlink():
                    path.chmod(0o700)
                path.rename(store.tmp / f"doomed-{number}")
                store.contents.forget(path)
            for path in stale_records:
                files.remove(path)
            _sweep_leftovers(store, kept_entries, cutoff)
        for number in range(len(unreachable)):
            files.remove(store.tmp / f"doomed-{number}")
    return SweptStore(len(stale_records), freed_bytes)


def verify_store(store: Store) -> tuple[int, list[str]]:
    """Check every byte; return the number of sound entries, and the errors of the others.

    Damaged objects are moved to quarantine.
    """
    damages = list(map(store.damage, store.actions()))
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
    """Select the entries to keep: those of live runs, and recently used ones within `max_size`."""
    kept_entries: dict[str, Entry] = {}
    sizes: dict[str, int] = {}
    for key, entry in sorted(by_key.items(), key=lambda item: -item[1].used):
        total = sum(sizes.values()) + (0 if entry.digest in sizes else entry.size)
        is_pinned = live is not None and entry.used >= live
        fits = max_size is None or total <= max_size
        if is_pinned or (entry.used >= cutoff and fits):
            kept_entries[key] = entry
            sizes[entry.digest] = entry.size
    return kept_entries


def _list_unreachable(store: Store, reachable: Collection[str], live: int | None) -> list[Path]:
    """List the unreachable objects, except those younger than the oldest live run."""
    return [
        path
        for path in (store.root / "objects").iterdir()
        if path.name not in reachable and (live is None or path.lstat().st_ctime_ns < live)
    ]


def _measure_size(tree: Path) -> int:
    """Return the bytes of an object; 0 if it has irregular files."""
    try:
        return sum(status.st_size for _, status in files.walk(tree))
    except files.IrregularError:
        return 0


def _sweep_leftovers(store: Store, kept_keys: Iterable[str], cutoff: int) -> None:
    """Delete old scratch, logs, quarantine, fingerprints and histories, and unused locks."""
    for folder in ("work", "logs", "quarantine", "fingerprints", "runs"):
        for path in (store.root / folder).iterdir():
            lock = store.root / "locks" / path.name
            busy = folder == "work" and lock.exists() and not locks.is_free(lock)
            if path.lstat().st_mtime_ns < cutoff and not busy:
                files.remove(path)
    needed_names = {
        *kept_keys,
        store.gate.name,
        *(path.name for path in (store.root / "work").iterdir()),
    }
    for lock in (store.root / "locks").iterdir():
        if lock.name not in needed_names and locks.is_free(lock):
            files.remove(lock)
