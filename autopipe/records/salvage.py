"""Moves a damaged record store aside and salvages its readable rows."""

import os
import sqlite3
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

from autopipe.records.about import WorkloadInfo
from autopipe.records.coding import insert_workload
from autopipe.records.schema import COLUMNS, PLATFORM, make_tables
from autopipe.store.files import is_irregular

_COPIED: Final = (*PLATFORM, *COLUMNS, "checksum")

_READ: Final = (
    "SELECT records.id, hash, here = 1, identity, about, reason, "  # noqa: S608 - constants
    f"{', '.join(_COPIED)} FROM records"
    " JOIN workloads ON workloads.id = records.workload"
    " LEFT JOIN wrong ON wrong.record = records.id ORDER BY records.id {order}"
)

_KNOWN: Final = "SELECT 1 FROM records WHERE workload = ? AND checksum = ?"

_SEEDS: Final = "key, document, origin, seconds"


def find_salvage_path(path: Path) -> Path:
    """Return where a damaged store lies until all that can be read of it is in a fresh one."""
    return path.with_name(f"{path.name}.salvage")


def salvage_store(path: Path) -> str:
    """Put a fresh store in the place of a damaged one; return a sentence about the saved records.

    The damaged file stays beside it. Damaged rows go along: readers check each row's checksum.
    Called again after it was interrupted, it goes on.
    """
    salvage_path = find_salvage_path(path)
    if not os.path.lexists(salvage_path):
        path.rename(salvage_path)
    if not path.exists():
        _move_log(path, salvage_path)
    rows, seeds = _read_undamaged_rows(salvage_path)
    with closing(sqlite3.connect(path)) as connection:
        make_tables(connection)
        with connection:
            for row in rows:
                _insert_row(connection, row)
            connection.executemany(
                f"INSERT OR IGNORE INTO seeds ({_SEEDS}) VALUES (?, ?, ?, ?)",  # noqa: S608
                seeds,
            )
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(name for name in names if not os.path.lexists(name))
    _move_log(salvage_path, aside)
    salvage_path.rename(aside)
    return f"{path} was damaged: {len(rows)} records were saved, the old file is {aside.name}"


def _move_log(path: Path, new: Path) -> None:
    """Rename the WAL and shared-memory files of a database."""
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(new.with_name(new.name + suffix))


def _read_undamaged_rows(path: Path) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the records before the damage, and those behind it; and the seeds before it."""
    rows: dict[int, tuple[Any, ...]] = {}
    seeds: list[tuple[Any, ...]] = []
    if is_irregular(path):
        return [], []
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = lambda data: data.decode(errors="replace")
        connection.execute("PRAGMA writable_schema = ON")  # or a file cut short is refused whole
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error):
                for row in connection.execute(_READ.format(order=order)):
                    rows.setdefault(row[0], row[1:])
        with suppress(sqlite3.Error):
            for seed in connection.execute(f"SELECT {_SEEDS} FROM seeds"):  # noqa: S608
                seeds.append(seed)  # noqa: PERF402 - those before an error stay
    return [rows[key] for key in sorted(rows)], seeds


def _insert_row(connection: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    name, here, identity, about, wrong, *values = row
    marks = ", ".join("?" * len(values))
    with suppress(sqlite3.Error):  # a value that is not even text
        workload = insert_workload(connection, name, identity, WorkloadInfo.parse(about), here=True)
        known_row = connection.execute(_KNOWN, (workload, values[-1])).fetchone()
        if known_row is not None:  # an interrupted attempt has come so far
            return
        cursor = connection.execute(
            f"INSERT INTO records (workload, here, {', '.join(_COPIED)})"  # noqa: S608 - constants
            f" VALUES (?, ?, {marks})",
            (workload, here, *values),
        )
        if wrong is not None:
            connection.execute("INSERT INTO wrong VALUES (?, ?)", (cursor.lastrowid, wrong))
