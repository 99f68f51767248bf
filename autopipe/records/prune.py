"""Deletes superfluous records."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from autopipe import foreign
from autopipe.records.connection import wrap_store_errors
from autopipe.records.record import Platform
from autopipe.records.store import RecordDetails, RecordStore

_TOGETHER: Final = 500
"""Rows deleted by one statement."""


@dataclass(frozen=True, slots=True)
class PruneRules:
    """What goes; a rule that is not given takes nothing."""

    before: datetime | None = None
    """Records that were measured earlier."""
    keep_best: int | None = None
    """All but so many of a workload on a platform."""
    failed: bool = False
    """Trials without a time."""
    versions: Mapping[str, str] | None = None
    """Records of other versions than these, by name as in the records."""


def list_prunable(records: Iterable[RecordDetails], rules: PruneRules) -> dict[int, str]:
    """Return why records go, by their row ids."""
    groups: dict[tuple[str, str, Platform], list[RecordDetails]] = {}
    for record in records:
        key = (record.record.workload, record.identity, record.platform)
        groups.setdefault(key, []).append(record)
    return {
        details.id: reason
        for group in groups.values()
        for place, details in enumerate(sorted(group, key=_to_sort_key))
        if (reason := _explain_pruning(details, place, rules))
    }


def prune_records(store: RecordStore, rules: PruneRules, *, dry_run: bool) -> Counter[str]:
    """Delete records, and workloads that are left with none; return how many, by why.

    Raises StoreError.
    """
    reasons = list_prunable(store.every(), rules)
    if reasons and not dry_run:
        with wrap_store_errors(store.path):
            _delete_records(store.connection, list(reasons))
    return Counter(reasons.values())


def _explain_pruning(details: RecordDetails, place: int, rules: PruneRules) -> str | None:
    if rules.versions is not None and _is_other_version(details.platform, rules.versions):
        return "of other versions"
    if rules.before is not None and _parse_time(details.record.measured) < rules.before:
        return "too old"
    if rules.failed and details.wrong is None and details.believed.median == float("inf"):
        return "failed"
    if rules.keep_best is not None and details.wrong is None and place >= rules.keep_best:
        return "not among the best"
    return None


def _to_sort_key(details: RecordDetails) -> tuple[object, ...]:
    """Order by rank; wrong records, which block their schedules, come last."""
    return (details.wrong is not None, *details.rank)


def _is_other_version(platform: Platform, versions: Mapping[str, str]) -> bool:
    try:
        theirs = foreign.parse_object(platform.versions)
    except foreign.MalformedError:
        return True
    return any(theirs.get(name, version) != version for name, version in versions.items())


def _parse_time(timestamp: str) -> datetime:
    try:
        time = datetime.fromisoformat(timestamp)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _delete_records(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    with connection:
        for start in range(0, len(ids), _TOGETHER):
            some = ids[start : start + _TOGETHER]
            marks = ", ".join("?" * len(some))
            for table, column in (("wrong", "record"), ("records", "id")):
                connection.execute(
                    f"DELETE FROM {table} WHERE {column} IN ({marks})",  # noqa: S608 - constants
                    some,
                )
        connection.execute("DELETE FROM workloads WHERE id NOT IN (SELECT workload FROM records)")
    with suppress(sqlite3.OperationalError):  # others are reading: the room is used again anyway
        connection.execute("VACUUM")
