"""Takes records over from elsewhere, each only once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autopipe.records.coding import find_workload, insert_records, insert_workload
from autopipe.records.connection import wrap_store_errors
from autopipe.records.seed import Seed
from autopipe.records.store import RecordDetails, RecordStore


@dataclass(frozen=True, slots=True)
class Taken:
    """Counts of imported records."""

    added: int
    known: int
    """What was there already."""
    condemned: int = 0
    """Records new here and marked as wrong at their source, which were left out."""


def add_claims(store: RecordStore, records: Iterable[RecordDetails]) -> Taken:
    """Add records that are not known yet as claims, all or none. Raises StoreError.

    A record marked as wrong at its source is left out if it is new here. It removes nothing: only a
    check on this machine condemns a schedule.
    """
    added_count = known_count = condemned_count = 0
    connection = store.connection
    with wrap_store_errors(store.path), connection:
        connection.execute("BEGIN IMMEDIATE")
        for row in records:
            record = row.record
            workload = find_workload(connection, record.workload, row.identity)
            record_key = (workload, record.checksum(row.platform))
            query = "SELECT id FROM records WHERE workload = ? AND checksum = ?"
            if connection.execute(query, record_key).fetchone() is not None:
                known_count += 1
            elif row.wrong is not None:
                condemned_count += 1
            else:
                about = row.about
                workload = insert_workload(
                    connection, record.workload, row.identity, about, here=False
                )
                insert_records(connection, [(workload, row.platform, record)], here=False)
                added_count += 1
    return Taken(added_count, known_count, condemned_count)


def add_seeds(store: RecordStore, seeds: Iterable[Seed]) -> Taken:
    """Add seeds that are not known yet, all of them or none. Raises StoreError."""
    added_count = known_count = 0
    with wrap_store_errors(store.path), store.connection as connection:
        for seed in seeds:
            cursor = connection.execute(
                "INSERT OR IGNORE INTO seeds (key, document, origin, seconds) VALUES (?, ?, ?, ?)",
                (seed.key, seed.document, seed.origin, seed.seconds),
            )
            added_count += cursor.rowcount
            known_count += 1 - cursor.rowcount
    return Taken(added_count, known_count)


def list_seeds(store: RecordStore, key: str | None = None) -> list[Seed]:
    """Return the seeds of a key, or all of them, the fastest first. Raises StoreError."""
    with wrap_store_errors(store.path):
        rows = store.connection.execute(
            "SELECT key, document, origin, seconds FROM seeds WHERE key = coalesce(?, key)"
            " ORDER BY seconds, id",
            (key,),
        ).fetchall()
    return [Seed(*row) for row in rows if _has_column_types(row)]


def _has_column_types(row: Sequence[object]) -> bool:
    """Tell whether a row has the types that a table of ours has; another's may have any."""
    *texts, seconds = row
    return all(isinstance(text, str) for text in texts) and isinstance(seconds, float)


def merge_store(store: RecordStore, path: Path) -> tuple[Taken, int]:
    """Import all of another store; return also the number of its damaged records.

    Raises StoreError.
    """
    with RecordStore.view(path) as source:
        records = source.every()
        seeds = list_seeds(source)
        damaged_count = source.damaged
    add_seeds(store, seeds)
    return add_claims(store, records), damaged_count
