"""The durable store of tuning records: one SQLite file that many processes may share."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from autopipe.errors import StoreError
from autopipe.records.about import WorkloadInfo
from autopipe.records.coding import (
    CHECKED,
    count_damaged,
    decode_checked,
    find_workload,
    insert_records,
    insert_workload,
    keep_aside,
    to_sort_key,
)
from autopipe.records.connection import open_readable, open_writable, wrap_store_errors
from autopipe.records.identity import digest_module
from autopipe.records.record import FASTEST, Platform, Record
from autopipe.records.salvage import find_salvage_path, salvage_store
from autopipe.store.files import is_irregular
from autopipe.store.locks import Patience, hold_lock

_SELECT: Final = (
    f"SELECT {CHECKED} FROM records"  # noqa: S608 - constants
    " WHERE workload = ? AND target = ? AND versions = ? AND device = ? AND here"
    " AND id > ? AND id NOT IN (SELECT record FROM wrong) ORDER BY id"
)

_ALL: Final = (
    f"SELECT hash, identity, about, reason, here, {CHECKED} FROM records"  # noqa: S608 - constants
    " JOIN workloads ON workloads.id = records.workload"
    " LEFT JOIN wrong ON wrong.record = records.id"
)

_Row = tuple[str, tuple[Any, ...]]
"""A hash of a workload, and a row of `CHECKED` as it was read."""

_Found = tuple[int, Platform, Record]
"""A sound record, and its key."""


class StoredRecord(NamedTuple):
    """A record as it lies in the store."""

    id: int
    record: Record


class RecordDetails(NamedTuple):
    """A record with all that is known beside it."""

    id: int
    record: Record
    platform: Platform
    identity: str
    """What tells its workload from another of the same hash."""
    about: WorkloadInfo | None
    wrong: str | None
    """Why its schedule is quarantined; null if it is not known to be wrong."""
    here: bool = False
    """Whether this store has measured it; false for claims."""

    @property
    def believed(self) -> Record:
        """The record; a failed trial if its time is impossible."""
        flops = self.about.flops if self.about else 0.0
        return self.record.believed(self.platform.least(flops))

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """Sort key of the winner: failures last, records measured here before claims."""
        is_failed, is_coarse, seconds = to_sort_key(self.believed)
        return is_failed, not self.here, is_coarse, seconds


class Tally(NamedTuple):
    """Trials of a session on one workload."""

    trials: int
    failed: int


class RecordStore:
    """Records by workload and platform. What `add` returned from is on disk."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection = connection
        """For this package only."""
        self.path = path
        self.damaged = 0
        """Records that were left out because their checksum is wrong."""
        self._found: dict[_Row, _Found | None] = {}

    @classmethod
    def open(cls, path: Path, warn: Callable[[str], None]) -> Self:
        """Open the store, made anew if there is none; a damaged file is moved aside first.

        Readable records are salvaged, and `warn` is called. Raises StoreError.
        """
        lock = path.with_name(f"{path.name}.lock")
        with wrap_store_errors(path):
            try:
                return cls(_open_intact(path), path)
            except sqlite3.OperationalError:  # locked, full, not permitted: not damaged
                raise
            except sqlite3.DatabaseError:
                with hold_lock(
                    lock, Patience(lambda user: warn(f"waiting for {user}")), alone=True
                ):
                    return cls(_open_or_salvage(path, warn), path)

    @classmethod
    def view(cls, path: Path) -> Self:
        """Open a store that is there, without changing it. Raises StoreError."""
        if not path.exists():
            raise StoreError(f"{path}: there are no tuning records; name their store with --store")
        if is_irregular(path):
            raise StoreError(f"{path}: not a regular file")
        with wrap_store_errors(path):
            return cls(open_readable(path), path)

    def add(
        self,
        platform: Platform,
        module: str,
        records: Sequence[Record],
        about: WorkloadInfo | None = None,
    ) -> None:
        """Keep trials of a workload that were measured here; `module` is its JSON.

        All of them or none is written.
        """
        if not records:
            return
        with wrap_store_errors(self.path), self.connection:
            name = records[0].workload
            workload = insert_workload(
                self.connection, name, digest_module(module), about, here=True
            )
            rows = ((workload, platform, record) for record in records)
            insert_records(self.connection, rows, here=True)

    def rows(
        self, workload: str, module: str, platform: Platform, since: int = 0
    ) -> list[StoredRecord]:
        """Return all sound records of a workload measured here on a platform, oldest first.

        Only those behind row `since`.

        Claims of other machines are left out. A record with an impossible time is a failed trial.
        """
        with wrap_store_errors(self.path):
            key = find_workload(self.connection, workload, digest_module(module))
            values = (key, *platform, since)
            selected_rows = self.connection.execute(_SELECT, values).fetchall()
            least = self._find_least_seconds(key, platform)
            every = self._filter_damaged([(workload, row) for row in selected_rows], self._found)
        return [StoredRecord(id_, record.believed(least)) for id_, _, record in every]

    def best(self, workload: str, module: str, platform: Platform) -> StoredRecord | None:
        """Return the fastest plausible record measured here; coarse times rank last."""
        rows = self.rows(workload, module, platform)
        best = min(rows, key=lambda row: to_sort_key(row.record), default=None)
        return None if best is None or best.record.median >= float("inf") else best

    def every(self, condition: str = "TRUE", values: Sequence[object] = ()) -> list[RecordDetails]:
        """Return all sound records that an SQL condition holds for, oldest first."""
        with wrap_store_errors(self.path):
            query = f"{_ALL} WHERE {condition} ORDER BY records.id"
            selected_rows = self.connection.execute(query, values).fetchall()
            rows = [(row[0], row[5:]) for row in selected_rows]
            sound = {row[0]: row for row in self._filter_damaged(rows, {})}
        return [
            RecordDetails(
                key,
                sound[key][2],
                sound[key][1],
                identity,
                WorkloadInfo.parse(about),
                wrong,
                here == 1,
            )
            for _, identity, about, wrong, here, key, *_ in selected_rows
            if key in sound
        ]

    def near(self, workload: str, likeness: str | None, platform: Platform) -> list[RecordDetails]:
        """List fast records with the same loops or operators, measured elsewhere.

        Claims for this very platform first, then those of the same target, of the same versions,
        of the same device, and by time among these. They seed a search; their times do not hold
        here.
        """
        candidates = self.every(
            "(hash = ? OR likeness = ?) AND error IS NULL", (workload, likeness)
        )
        local_key = (workload, platform)
        elsewhere = [
            details
            for details in candidates
            if not (details.here and (details.record.workload, details.platform) == local_key)
            and details.wrong is None
            and details.believed.median < float("inf")
        ]
        return sorted(
            elsewhere,
            key=lambda details: (
                _compare_platforms(details.platform, platform),
                *to_sort_key(details.record),
            ),
        )

    def quarantine(self, row: StoredRecord, reason: str) -> None:
        """Never return this record again: its schedule computes something else."""
        with wrap_store_errors(self.path), self.connection:
            self.connection.execute("INSERT OR REPLACE INTO wrong VALUES (?, ?)", (row.id, reason))

    def trials(self, session: str) -> dict[str, Tally]:
        """Return how much of each workload a session has measured, by hash."""
        with wrap_store_errors(self.path):
            counts = self.connection.execute(
                "SELECT hash, COUNT(*), COUNT(error) FROM records"
                " JOIN workloads ON workloads.id = records.workload"
                " WHERE session = ? AND here GROUP BY hash",
                (session,),
            ).fetchall()
        return {workload: Tally(trials, failed) for workload, trials, failed in counts}

    def kept_aside(self) -> int:
        """Return how many damaged records were ever moved out of the way."""
        with wrap_store_errors(self.path):
            return count_damaged(self.connection)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find_least_seconds(self, workload: int | None, platform: Platform) -> float:
        """Return the minimum plausible seconds of a workload."""
        row = self.connection.execute(
            "SELECT about FROM workloads WHERE id = ?", (workload,)
        ).fetchone()
        about = WorkloadInfo.parse(row[0]) if row else None
        return platform.least(about.flops) if about else FASTEST

    def _filter_damaged(
        self, rows: Sequence[_Row], decoded: dict[_Row, _Found | None]
    ) -> Iterator[_Found]:
        """Return the sound rows of those read with their hash; move damaged ones aside.

        `decoded` caches the rows: a search reads its own again at every trial.
        """
        for workload, row in rows:
            if (workload, row) not in decoded:
                decoded[workload, row] = decode_checked(workload, row)
        decoded_rows = [(row[0], decoded[workload, row]) for workload, row in rows]
        bad = [key for key, record in decoded_rows if record is None]
        keep_aside(self.connection, bad)
        self.damaged += len(bad)
        return iter([record for _, record in decoded_rows if record is not None])


def _compare_platforms(left: Platform, right: Platform) -> tuple[bool, bool, bool]:
    return (
        left.target != right.target, left.versions != right.versions, left.device != right.device
    )  # fmt: skip


def _open_intact(path: Path) -> sqlite3.Connection:
    """Open an intact store. Raises sqlite3.DatabaseError, or OperationalError on failure to open.

    A store with an unfinished salvage is not intact.
    """
    if find_salvage_path(path).exists():
        raise sqlite3.DatabaseError("the salvage of what was damaged is not finished")
    if is_irregular(path):
        raise sqlite3.DatabaseError("not a regular file")
    return open_writable(path)


def _open_or_salvage(path: Path, warn: Callable[[str], None]) -> sqlite3.Connection:
    try:
        return _open_intact(path)  # another process was quicker
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        warn(salvage_store(path))
        return open_writable(path)
