"""Takes records over from elsewhere, each only once."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autopipe.records.coding import insert, place
from autopipe.records.connection import guard
from autopipe.records.seed import Seed
from autopipe.records.store import Found, Store


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken over."""

    added: int
    known: int
    """What was there already."""


def take(store: Store, found: Iterable[Found]) -> Taken:
    """Add records that are not known yet as claims, all or none. Raises StoreError."""
    added = known = 0
    connection = store.connection
    with guard(store.path), connection:
        connection.execute("BEGIN IMMEDIATE")
        for each in found:
            record = each.record
            workload = place(connection, record.workload, each.identity, each.about)
            same = (workload, record.checksum(each.platform))
            query = "SELECT id FROM records WHERE workload = ? AND checksum = ?"
            row = connection.execute(query, same).fetchone()
            if row is None:
                insert(connection, [(workload, each.platform, record)], here=False)
                row = connection.execute(query, same).fetchone()
                added += 1
            else:
                known += 1
            if each.wrong is not None:
                values = (row[0], each.wrong)
                connection.execute("INSERT OR IGNORE INTO wrong VALUES (?, ?)", values)
    return Taken(added, known)


def plant(store: Store, seeds: Iterable[Seed]) -> Taken:
    """Add seeds that are not known yet, all of them or none. Raises StoreError."""
    added = known = 0
    with guard(store.path), store.connection as connection:
        for seed in seeds:
            done = connection.execute(
                "INSERT OR IGNORE INTO seeds (key, document, origin, seconds) VALUES (?, ?, ?, ?)",
                (seed.key, seed.document, seed.origin, seed.seconds),
            )
            added += done.rowcount
            known += 1 - done.rowcount
    return Taken(added, known)


def planted(store: Store, key: str | None = None) -> list[Seed]:
    """Return the seeds of a key, or all of them, the fastest first. Raises StoreError."""
    with guard(store.path):
        rows = store.connection.execute(
            "SELECT key, document, origin, seconds FROM seeds WHERE key = coalesce(?, key)"
            " ORDER BY seconds, id",
            (key,),
        ).fetchall()
    return [Seed(*row) for row in rows]


def merge(store: Store, other: Path) -> tuple[Taken, int]:
    """Take over all of another store; return also how many of its records are damaged.

    Raises StoreError.
    """
    with Store.view(other) as source:
        found = source.every()
        seeds = planted(source)
        damaged = source.damaged
    plant(store, seeds)
    return take(store, found), damaged
