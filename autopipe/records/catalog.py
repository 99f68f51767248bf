"""What is in a store, by workload and platform."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autopipe.errors import ConfigError
from autopipe.records.about import WorkloadInfo
from autopipe.records.record import Platform, Record
from autopipe.records.store import RecordDetails


@dataclass(frozen=True, slots=True)
class WorkloadRecords:
    """The records of one workload on one platform."""

    workload: str
    identity: str
    platform: Platform
    about: WorkloadInfo | None
    records: tuple[Record, ...]
    """The best first, failed ones last; an impossible time counts as a failure."""
    here: tuple[bool, ...]
    """Of each record whether this store has measured it; others are claims, and come later."""
    wrong: int
    """Further records, of schedules with wrong results."""

    @property
    def best(self) -> Record | None:
        """The fastest; null if none has a time."""
        first = self.records[0] if self.records else None
        return first if first is not None and first.median < math.inf else None

    @property
    def claimed(self) -> bool:
        """Whether the best is a claim: nothing of it was measured here."""
        return self.best is not None and not self.here[0]

    @property
    def failed(self) -> int:
        """Trials without a time."""
        return sum(record.median == math.inf for record in self.records)


def group_by_workload(records: Iterable[RecordDetails]) -> list[WorkloadRecords]:
    """Return the entries, by platform and then by time, the longest first."""
    groups: dict[tuple[str, str, Platform], list[RecordDetails]] = {}
    for record in records:
        key = (record.record.workload, record.identity, record.platform)
        groups.setdefault(key, []).append(record)
    entries = [_summarize_group(key, group) for key, group in groups.items()]
    return sorted(entries, key=_to_sort_key)


def select_workload(entries: Sequence[WorkloadRecords], start: str) -> list[WorkloadRecords]:
    """Return the entries of the workload with this hash prefix.

    Raises ConfigError if there is none, or more than one.
    """
    names = sorted({e.workload for e in entries if e.workload.startswith(start.lower())})
    if not names:
        raise ConfigError(f"no workload starts with {start!r}; `autopipe records ls` lists them")
    if len(names) > 1:
        raise ConfigError(f"{start!r} is the start of {len(names)} workloads: {', '.join(names)}")
    return [entry for entry in entries if entry.workload == names[0]]


def _summarize_group(
    key: tuple[str, str, Platform], group: Sequence[RecordDetails]
) -> WorkloadRecords:
    right = sorted(
        (details for details in group if details.wrong is None), key=lambda details: details.rank
    )
    records, local_flags = (
        tuple(details.believed for details in right),
        tuple(details.here for details in right),
    )
    return WorkloadRecords(*key, group[0].about, records, local_flags, len(group) - len(right))


def _to_sort_key(entry: WorkloadRecords) -> tuple[object, ...]:
    platform = entry.platform
    best = entry.best.median if entry.best else 0.0
    return platform.target, platform.versions, platform.device, -best, entry.workload
