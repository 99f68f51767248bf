"""Records as rows of the store."""

import json
import math
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

from autopipe.records.about import About
from autopipe.records.record import Platform, Record
from autopipe.records.schema import COLUMNS, PLATFORM


def encode(record: Record) -> list[object]:
    """Return the values of `COLUMNS`."""
    values = [getattr(record, name) for name in COLUMNS]
    values[COLUMNS.index("seconds")] = json.dumps(record.seconds)
    return values


def decode(workload: str, values: Sequence[Any]) -> Record | None:
    """Return the record that `encode` wrote, or None if it is damaged."""
    fields = dict(zip(COLUMNS, values, strict=True))
    try:
        seconds = tuple(float(value) for value in json.loads(fields.pop("seconds")))
        cut = bool(fields.pop("cut"))
        return Record(workload=workload, seconds=seconds, cut=cut, **fields)
    except (TypeError, ValueError, RecursionError):
        return None


def insert(
    connection: sqlite3.Connection, rows: Iterable[tuple[int | None, Platform, Record]]
) -> None:
    """Add records of the workloads with these row ids."""
    columns = ("workload", *PLATFORM, *COLUMNS, "checksum")
    marks = ", ".join("?" * len(columns))
    connection.executemany(
        f"INSERT INTO records ({', '.join(columns)}) VALUES ({marks})",  # noqa: S608 - constants
        (
            (workload, *astuple(platform), *encode(record), record.checksum(platform))
            for workload, platform, record in rows
        ),
    )


def place(
    connection: sqlite3.Connection, name: str, identity: str, about: About | None
) -> int | None:
    """Return the row id of a workload, made if it is new; a note that says more replaces one."""
    text, likeness = (about.text(), about.likeness) if about else (None, None)
    connection.execute(
        "INSERT INTO workloads (hash, identity, about, likeness) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET about = excluded.about, likeness = excluded.likeness"
        " WHERE excluded.about IS NOT NULL AND workloads.likeness IS NULL"
        " AND workloads.about IS NOT excluded.about",
        (name, identity, text, likeness),
    )
    return find(connection, name, identity)


def find(connection: sqlite3.Connection, name: str, identity: str) -> int | None:
    """Return the row id of a workload, or None if it is not known."""
    found = connection.execute(
        "SELECT id FROM workloads WHERE hash = ? AND identity = ?", (name, identity)
    ).fetchone()
    return None if found is None else int(found[0])


def order(record: Record) -> tuple[bool, bool, float]:
    """Sort records by who wins: the fastest, after them those with a coarse time, then failures."""
    return record.median == math.inf, record.cut, record.median
