"""Records as rows of the store: checked when they are read, and kept aside if damaged."""

import json
import math
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from autopipe.records import fields
from autopipe.records.about import WorkloadInfo
from autopipe.records.record import Platform, Record
from autopipe.records.schema import COLUMNS, PLATFORM

CHECKED: Final = ", ".join(("records.id", *PLATFORM, *COLUMNS, "checksum"))
"""The columns that `decode_checked` wants of a row, after the hash of its workload."""

_KEPT: Final = ", ".join(("workload", *PLATFORM, *COLUMNS, "checksum"))


def encode_record(record: Record) -> list[object]:
    """Return the values of `COLUMNS`."""
    values = [getattr(record, name) for name in COLUMNS]
    values[COLUMNS.index("seconds")] = json.dumps(record.seconds)
    return values


def decode_record(workload: str, values: Sequence[Any]) -> Record | None:
    """Return the record that `encode_record` wrote, or None if it is damaged."""
    content = dict(zip(COLUMNS, values, strict=True))
    try:
        seconds = json.loads(content["seconds"])  # what is no time is not written as a text here
        is_cut = bool(content["cut"])
        return fields.parse_record(
            {**content, "workload": workload, "seconds": seconds, "cut": is_cut}
        )
    except (TypeError, ValueError, RecursionError):
        return None


def insert_records(
    connection: sqlite3.Connection,
    rows: Iterable[tuple[int | None, Platform, Record]],
    *,
    here: bool,
) -> None:
    """Add records of the workloads with these row ids; `here` if this store has measured them."""
    columns = ("workload", *PLATFORM, *COLUMNS, "checksum", "here")
    marks = ", ".join("?" * len(columns))
    connection.executemany(
        f"INSERT INTO records ({', '.join(columns)}) VALUES ({marks})",  # noqa: S608 - constants
        (
            (workload, *platform, *encode_record(record), record.checksum(platform), here)
            for workload, platform, record in rows
        ),
    )


def insert_workload(
    connection: sqlite3.Connection,
    name: str,
    identity: str,
    about: WorkloadInfo | None,
    *,
    here: bool,
) -> int | None:
    """Return the row id of a workload, made if it is new.

    A note that this store makes itself, `here`, replaces one that is there, and another's never
    does: what a workload computes bounds which times of it are plausible.
    """
    text, likeness = (about.text(), about.likeness) if about else (None, None)
    replace = (
        "UPDATE SET about = excluded.about, likeness = excluded.likeness"
        " WHERE excluded.about IS NOT NULL AND workloads.about IS NOT excluded.about"
    )
    connection.execute(
        "INSERT INTO workloads (hash, identity, about, likeness) VALUES (?, ?, ?, ?)"  # noqa: S608
        f" ON CONFLICT DO {replace if here else 'NOTHING'}",
        (name, identity, text, likeness),
    )
    return find_workload(connection, name, identity)


def find_workload(connection: sqlite3.Connection, name: str, identity: str) -> int | None:
    """Return the row id of a workload, or None if it is not known."""
    row = connection.execute(
        "SELECT id FROM workloads WHERE hash = ? AND identity = ?", (name, identity)
    ).fetchone()
    return None if row is None else int(row[0])


def to_sort_key(record: Record) -> tuple[bool, bool, float]:
    """Order records: the fastest first, then those with a coarse time, then failures."""
    return record.median == math.inf, record.cut, record.median


def decode_checked(workload: str, row: Sequence[Any]) -> tuple[int, Platform, Record] | None:
    """Return the record of a row of `CHECKED`, with its id, or None if its checksum is wrong."""
    key, target, versions, device, *values, checksum = row
    record = decode_record(workload, values)
    if record is None or not all(isinstance(text, str) for text in (target, versions, device)):
        return None
    platform = Platform(target, versions, device)
    return (key, platform, record) if record.checksum(platform) == checksum else None


def keep_aside(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Move damaged records out of the way; in a read-only file they stay."""
    if not ids:
        return
    marks = ", ".join("?" * len(ids))
    with suppress(sqlite3.OperationalError), connection:
        connection.execute(
            f"INSERT INTO damaged ({_KEPT})"  # noqa: S608 - constants
            f" SELECT {_KEPT} FROM records WHERE id IN ({marks})",
            ids,
        )
        connection.execute(f"DELETE FROM records WHERE id IN ({marks})", ids)  # noqa: S608


def count_damaged(connection: sqlite3.Connection) -> int:
    """Return how many were moved out of the way since the store was made."""
    return int(connection.execute("SELECT COUNT(*) FROM damaged").fetchone()[0])
