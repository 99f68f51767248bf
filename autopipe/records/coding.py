"""Records as rows of the store."""

import json
import math
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from autopipe.records import fields
from autopipe.records.about import WorkloadInfo
from autopipe.records.record import Platform, Record
from autopipe.records.schema import COLUMNS, PLATFORM


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
