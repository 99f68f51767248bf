"""The durable store of tuning records: one SQLite file that many processes may share."""

import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from autopipe.errors import StoreError
from autopipe.pipeline.locks import shared
from autopipe.records.record import Platform, Record
from autopipe.records.salvage import salvage
from autopipe.records.schema import COLUMNS, TABLES

_PATIENCE: Final = 60.0
"""Seconds to wait for another process that is writing."""

_SELECT: Final = (
    f"SELECT id, {', '.join(COLUMNS)}, checksum FROM records"  # noqa: S608 - constants
    " WHERE workload = ? AND target = ? AND versions = ? AND device = ?"
    " AND id NOT IN (SELECT record FROM wrong) ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A record as it lies in the store."""

    id: int
    record: Record


@dataclass(frozen=True, slots=True)
class Tally:
    """Trials of a session on one workload."""

    trials: int
    failed: int


class Store:
    """Records by workload and platform. What `add` returned from is on disk."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self.damaged = 0
        """Records that were skipped because their checksum is wrong."""

    @classmethod
    def open(cls, path: Path, warn: Callable[[str], None]) -> Self:
        """Open the store, made anew if there is none; a damaged file is moved aside first.

        What can still be read is taken over, and `warn` is told. Raises StoreError.
        """
        lock = path.with_name(f"{path.name}.lock")
        with _guard(path):
            try:
                return cls(_connect(path), path)
            except sqlite3.OperationalError:  # locked, full, not permitted: not damaged
                raise
            except sqlite3.DatabaseError:
                with shared(lock, alone=True):
                    return cls(_repair(path, warn), path)

    def add(self, platform: Platform, module: str, records: Sequence[Record]) -> None:
        """Keep trials of a workload; `module` is its JSON. All of them or none is written."""
        if not records:
            return
        with _guard(self._path), self._connection:
            self._connection.execute(
                "INSERT OR IGNORE INTO workloads (hash, module) VALUES (?, ?)",
                (records[0].workload, module),
            )
            workload = self._workload(records[0].workload, module)
            insert(self._connection, ((workload, platform, record) for record in records))

    def rows(self, workload: str, module: str, platform: Platform) -> list[Row]:
        """Return all sound records of a workload on a platform, oldest first."""
        with _guard(self._path):
            key = self._workload(workload, module)
            found = self._connection.execute(
                _SELECT,
                (key, platform.target, platform.versions, platform.device),
            ).fetchall()
        return list(self._sound(found, workload, platform))

    def best(self, workload: str, module: str, platform: Platform) -> Row | None:
        """Return the fastest record with a time that can be true; a coarse time comes last."""
        timed = [
            row for row in self.rows(workload, module, platform) if row.record.median < math.inf
        ]
        return min(timed, key=lambda row: (row.record.cut, row.record.median), default=None)

    def quarantine(self, row: Row, reason: str) -> None:
        """Never return this record again: its schedule computes something else."""
        with _guard(self._path), self._connection:
            self._connection.execute("INSERT OR REPLACE INTO wrong VALUES (?, ?)", (row.id, reason))

    def trials(self, session: str) -> dict[str, Tally]:
        """Return how much of each workload a session has measured, by hash."""
        with _guard(self._path):
            found = self._connection.execute(
                "SELECT hash, COUNT(*), COUNT(error) FROM records"
                " JOIN workloads ON workloads.id = records.workload"
                " WHERE session = ? GROUP BY hash",
                (session,),
            ).fetchall()
        return {workload: Tally(trials, failed) for workload, trials, failed in found}

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _workload(self, name: str, module: str) -> int | None:
        found = self._connection.execute(
            "SELECT id FROM workloads WHERE hash = ? AND module = ?", (name, module)
        ).fetchone()
        return None if found is None else int(found[0])

    def _sound(
        self, found: Sequence[tuple[Any, ...]], workload: str, platform: Platform
    ) -> Iterator[Row]:
        for key, *values, checksum in found:
            record = decode(workload, values)
            if record is not None and record.checksum(platform) == checksum:
                yield Row(key, record)
            else:
                self.damaged += 1


def insert(
    connection: sqlite3.Connection, rows: Iterator[tuple[int | None, Platform, Record]]
) -> None:
    """Add records of the workloads with these row ids."""
    columns = ("workload", "target", "versions", "device", *COLUMNS, "checksum")
    marks = ", ".join("?" * len(columns))
    connection.executemany(
        f"INSERT INTO records ({', '.join(columns)}) VALUES ({marks})",  # noqa: S608 - constants
        (
            (
                workload, platform.target, platform.versions, platform.device,
                *encode(record), record.checksum(platform),
            )
            for workload, platform, record in rows
        ),
    )  # fmt: skip


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


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_PATIENCE)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a commit waits for the disk
        _check(connection)
        connection.executescript(TABLES)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if said != "ok":
        raise sqlite3.DatabaseError(said)


def _repair(path: Path, warn: Callable[[str], None]) -> sqlite3.Connection:
    try:
        return _connect(path)  # another process was quicker
    except sqlite3.DatabaseError:
        warn(salvage(path))
        return _connect(path)


@contextmanager
def _guard(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path}: {error}") from error
