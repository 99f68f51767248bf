"""The tables of the record store, and how an older file comes to have them.

`PRAGMA user_version` says which tables a file has.
"""

import sqlite3
from collections.abc import Callable, Collection
from typing import Final

from autopipe.records.about import WorkloadInfo
from autopipe.records.identity import identify

VERSION: Final = 3
"""Of the tables below."""

_TOLD: Final = 2
"""From this version on tables say who measured."""

COLUMNS: Final = (
    "engine", "implementation", "schedule", "seconds", "error", "cut", "measured", "session",
)  # fmt: skip
"""Columns of `records` that are fields of a record under the same name."""

PLATFORM: Final = ("target", "versions", "device")
"""Columns of `records` that say where it holds."""

_RECORDS: Final = """
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    workload INTEGER NOT NULL,
    target TEXT NOT NULL,
    versions TEXT NOT NULL,
    device TEXT NOT NULL,
    engine TEXT NOT NULL,
    implementation TEXT NOT NULL,
    schedule TEXT NOT NULL,
    seconds TEXT NOT NULL,
    error TEXT,
    cut INTEGER NOT NULL,
    measured TEXT NOT NULL,
    session TEXT NOT NULL,
    checksum TEXT NOT NULL,
    here INTEGER NOT NULL DEFAULT 0,
    worker TEXT
) STRICT"""
"""`here` is 1 where this store has measured the time itself; all else is what others say.

`worker` is who measured it for this store; null for this machine."""

_WORKLOADS: Final = """
CREATE TABLE workloads (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL,
    identity TEXT NOT NULL,
    about TEXT,
    likeness TEXT,
    UNIQUE (hash, identity)
) STRICT"""
"""A workload is its hash and its identity together: a hash of 64 bits alone could mix two up."""

_DAMAGED: Final = """
CREATE TABLE damaged (
    id INTEGER PRIMARY KEY, noticed TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    workload, target, versions, device, engine, implementation, schedule, seconds, error, cut,
    measured, session, checksum
)"""
"""Records whose checksum is wrong, as they were found."""

_SEEDS: Final = """
CREATE TABLE seeds (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    document TEXT NOT NULL,
    origin TEXT NOT NULL,
    seconds REAL NOT NULL,
    UNIQUE (key, document)
) STRICT"""
"""What logs of other tools say was fast: tried early, never believed."""

_WRONG: Final = "CREATE TABLE wrong (record INTEGER PRIMARY KEY, reason TEXT NOT NULL) STRICT"

_DOUBTED: Final = "CREATE TABLE doubted (worker TEXT PRIMARY KEY, reason TEXT NOT NULL) STRICT"
"""Workers whose times others did not find again: what they have measured is no time of ours."""

_INDEXES: Final = (
    "CREATE INDEX by_workload ON records (workload, target, versions, device)",
    "CREATE INDEX by_session ON records (session)",
    "CREATE INDEX by_checksum ON records (checksum)",
    "CREATE INDEX by_likeness ON workloads (likeness)",
)


class Newer(Exception):  # noqa: N818 - says what it is
    """The file was written by a later release."""


def upgrade(
    connection: sqlite3.Connection, own: Callable[[], Collection[str]] = lambda: ()
) -> None:
    """Give a file the tables of this release, all or none of them. Raises Newer.

    Older tables do not say who measured: `own` names the sessions that are known to be this
    store's, and what others have measured is a claim from then on.
    """
    if _version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        version = _version(connection)
        if version > VERSION:
            raise Newer(f"it has version {version} of the tables, this autopipe knows {VERSION}")
        if version < VERSION:
            is_old = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            (_STEPS[version] if is_old else _make)(connection)
            if is_old and version < _TOLD:
                mine = [(session,) for session in own()]
                connection.executemany("UPDATE records SET here = 1 WHERE session = ?", mine)
            connection.execute(f"PRAGMA user_version = {VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _make(connection: sqlite3.Connection) -> None:
    for statement in (_WORKLOADS, _RECORDS, _WRONG, _DAMAGED, _SEEDS, _DOUBTED, *_INDEXES):
        connection.execute(statement)


def _from_0(connection: sqlite3.Connection) -> None:
    """Take over the first tables, which told workloads apart by the text of their modules."""
    for index in ("by_workload", "by_session"):
        connection.execute(f"DROP INDEX IF EXISTS {index}")
    for table in ("workloads", "records", "wrong"):
        connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    _make(connection)
    connection.create_function("identify", 1, identify, deterministic=True)
    connection.create_function("describe", 1, _described, deterministic=True)
    connection.execute(
        "INSERT OR IGNORE INTO workloads (hash, identity, about)"
        " SELECT hash, identify(module), describe(module) FROM old_workloads ORDER BY id"
    )
    columns = ", ".join((*PLATFORM, *COLUMNS, "checksum"))
    connection.execute(
        f"INSERT INTO records (id, workload, {columns})"  # noqa: S608 - constants
        f" SELECT old_records.id, workloads.id, {columns} FROM old_records"
        " JOIN old_workloads ON old_workloads.id = old_records.workload"
        " JOIN workloads ON workloads.hash = old_workloads.hash"
        " AND workloads.identity = identify(old_workloads.module)"
    )
    connection.execute("INSERT INTO wrong SELECT record, reason FROM old_wrong")
    for table in ("wrong", "records", "workloads"):
        connection.execute(f"DROP TABLE old_{table}")


def _from_1(connection: sqlite3.Connection) -> None:
    """Take over tables that did not tell who measured."""
    connection.execute("ALTER TABLE records ADD COLUMN here INTEGER NOT NULL DEFAULT 0")
    _from_2(connection)


def _from_2(connection: sqlite3.Connection) -> None:
    """Take over tables that did not tell which worker of a farm measured."""
    connection.execute("ALTER TABLE records ADD COLUMN worker TEXT")
    connection.execute(_DOUBTED)


_STEPS: Final = {0: _from_0, 1: _from_1, 2: _from_2}
"""What brings older tables up to date, by their version."""


def _described(module: str) -> str | None:
    about = WorkloadInfo.of_module(module)
    return about.text() if about is not None else None
