"""The text form of records: one canonical JSON line each, made for git and for a lock."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple, dataclass
from typing import Any, Final

from autopipe import foreign
from autopipe.config.problem import shown
from autopipe.records import fields
from autopipe.records.about import WorkloadInfo
from autopipe.records.record import Platform, Record
from autopipe.records.store import RecordDetails
from autopipe.store.canonical import digest
from autopipe.traces.reading import Forbidden, check

LONGEST: Final = 1 << 24
"""Bytes of a line."""

_PLATFORM: Final = ("target", "versions", "device")


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that is no sound record."""

    number: int
    """Its place in the file, from 1."""
    reason: str


def write(records: Iterable[RecordDetails]) -> str:
    """Write records as lines: sorted by workload, platform and schedule, whatever their order."""
    return "".join(f"{_line(record)}\n" for record in sorted(records, key=_place))


def read(lines: Iterable[bytes | None]) -> Iterator[RecordDetails | Bad]:
    """Read what `write` wrote, line by line; a damaged one costs itself."""
    for number, line in enumerate(lines, 1):
        if line is None:
            yield Bad(number, "it is too long")
        elif line.strip():
            try:
                yield _parsed(foreign.parse_object(line))
            except ValueError as error:
                yield Bad(number, str(error))


def winners(records: Iterable[RecordDetails]) -> list[RecordDetails]:
    """Return the best record of each workload on each platform, as far as one has a time."""
    best: dict[tuple[str, str, Platform], RecordDetails] = {}
    for record in records:
        key = (record.record.workload, record.identity, record.platform)
        before = best.get(key)
        sound = record.wrong is None and record.believed.median < math.inf
        if sound and (before is None or record.rank < before.rank):
            best[key] = record
    return list(best.values())


def _line(details: RecordDetails) -> str:
    content: dict[str, object] = {
        **asdict(details.record),
        "seconds": [v if math.isfinite(v) else str(v) for v in details.record.seconds],
        **{name: _opened(text) for name, text in asdict(details.platform).items()},
        "identity": details.identity,
        "about": details.about and details.about.json(),
        "wrong": details.wrong,
    }
    content["checksum"] = digest(content)
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _parsed(content: dict[str, Any]) -> RecordDetails:
    """Return the record of a line. Raises ValueError."""
    if content.pop("checksum", None) != digest(content):
        raise ValueError("its checksum is wrong")
    about, wrong = content.pop("about", None), content.pop("wrong", None)
    details = RecordDetails(
        platform=fields.platform({name: content.pop(name, None) for name in _PLATFORM}),
        identity=fields.text(content.pop("identity", None), "identity"),
        about=None if about is None else WorkloadInfo.from_json(about),
        wrong=fields.optional(wrong, "wrong"),
        record=fields.record(content),
        id=0,
    )
    _harmless(details.record)
    return details


def _harmless(record: Record) -> None:
    """Raise ValueError for a schedule that holds what no schedule needs."""
    try:
        check(record.schedule)
    except Forbidden as error:
        who = f"workload {shown(record.workload)}, engine {shown(record.engine)}"
        raise ValueError(f"{who}: {error}") from None


def _place(details: RecordDetails) -> tuple[object, ...]:
    record = details.record
    return (
        record.workload, details.identity, astuple(details.platform), record.engine,
        record.implementation, record.schedule, record.measured, record.session,
        record.checksum(details.platform),
    )  # fmt: skip


def _opened(text: str) -> object:
    """Return the JSON value that a text is, if it can be written as that again."""
    try:
        value = foreign.parse_object(text)
        return value if _closed(value) == text else text
    except foreign.MalformedError:
        return text


def _closed(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
