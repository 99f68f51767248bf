"""Damaged records: checked when they are read, counted, and kept aside as they were found."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from autopipe.records.coding import decode_record
from autopipe.records.record import Platform, Record
from autopipe.records.schema import COLUMNS, PLATFORM

CHECKED: Final = ("records.id", *PLATFORM, *COLUMNS, "checksum")
"""What `decode_checked` wants to know of a row, after the hash of its workload."""

_KEPT: Final = ", ".join(("workload", *PLATFORM, *COLUMNS, "checksum"))


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
