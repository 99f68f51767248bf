"""The tables of the record store.

`PRAGMA user_version` states which tables a file has.
"""

import sqlite3
from typing import Final

VERSION: Final = 3
"""Of the tables below."""

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
    here INTEGER NOT NULL DEFAULT 0
) STRICT"""
"""`here` is 1 if this store measured the time itself, and 0 for claims."""

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
"""Records with a wrong checksum, unchanged."""

_SEEDS: Final = """
CREATE TABLE seeds (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    document TEXT NOT NULL,
    origin TEXT NOT NULL,
    seconds REAL NOT NULL,
    UNIQUE (key, document)
) STRICT"""
"""Unverified times from logs of other tools: tried early, never trusted."""

_WRONG: Final = "CREATE TABLE wrong (record INTEGER PRIMARY KEY, reason TEXT NOT NULL) STRICT"

_INDEXES: Final = (
    "CREATE INDEX by_workload ON records (workload, target, versions, device)",
    "CREATE INDEX by_session ON records (session)",
    "CREATE INDEX by_checksum ON records (checksum)",
    "CREATE INDEX by_likeness ON workloads (likeness)",
)


class OtherVersionError(Exception):
    """Another release wrote the file, or something else did."""


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of a new file, all or none of them. Raises OtherVersionError."""
    if _read_schema_version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        version = _read_schema_version(connection)
        if version == VERSION:
            return
        if version or connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise OtherVersionError(
                f"it has version {version} of the tables, this autopipe reads version {VERSION}"
            )
        for statement in (_WORKLOADS, _RECORDS, _WRONG, _DAMAGED, _SEEDS, *_INDEXES):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _read_schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
