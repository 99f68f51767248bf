"""Moves a damaged record store aside and takes over what can still be read."""

import sqlite3
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

from autopipe.records.schema import COLUMNS, TABLES

_COPIED: Final = ("target", "versions", "device", *COLUMNS, "checksum")

_READ: Final = (
    f"SELECT records.id, hash, module, {', '.join(_COPIED)}"  # noqa: S608 - constants
    " FROM records JOIN workloads ON workloads.id = records.workload"
    " WHERE records.id NOT IN (SELECT record FROM wrong) ORDER BY records.id"
)


def salvage(path: Path) -> str:
    """Put a fresh store in the place of a damaged one; return a sentence that says what was saved.

    The damaged file stays beside it. Damaged rows go along: readers check each row's checksum.
    """
    damaged = _aside(path)
    rows = _readable(damaged)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(TABLES)
        for row in rows:
            _keep(connection, row)
    return f"{path} was damaged: {len(rows)} records were saved, the old file is {damaged.name}"


def _aside(path: Path) -> Path:
    """Rename the file, and with it the log that belongs to it; return its new path."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(name for name in names if not name.exists())
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _readable(path: Path) -> list[tuple[Any, ...]]:
    """Return the rows before the damage, and those behind it."""
    rows: dict[int, tuple[Any, ...]] = {}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")  # or a file cut short is refused whole
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error):
                for row in connection.execute(f"{_READ} {order}"):
                    rows[row[0]] = row[1:]
    return [rows[key] for key in sorted(rows)]


def _keep(connection: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    workload, module, *values = row
    with suppress(sqlite3.Error):  # a value that is not even text
        connection.execute(
            "INSERT OR IGNORE INTO workloads (hash, module) VALUES (?, ?)", (workload, module)
        )
        connection.execute(
            f"INSERT INTO records (workload, {', '.join(_COPIED)})"  # noqa: S608 - constants
            f" SELECT id, {', '.join('?' * len(_COPIED))} FROM workloads"
            " WHERE hash = ? AND module = ?",
            (*values, workload, module),
        )
