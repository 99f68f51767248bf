"""The text form of records: one canonical JSON line each, made for git and for a lock."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autopipe import foreign
from autopipe.config.problem import format_value
from autopipe.errors import ConfigError, convert_os_errors
from autopipe.records import fields
from autopipe.records.about import WorkloadInfo
from autopipe.records.record import Platform, Record
from autopipe.records.store import RecordDetails
from autopipe.store.canonical import digest_json
from autopipe.traces.reading import Forbidden, check_schedule

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
    return "".join(f"{_format_line(record)}\n" for record in sorted(records, key=_to_sort_key))


def read(lines: Iterable[bytes | None]) -> Iterator[RecordDetails | Bad]:
    """Read what `write` wrote, line by line; a damaged one costs itself."""
    for number, line in enumerate(lines, 1):
        if line is None:
            yield Bad(number, "it is too long")
        elif line.strip():
            try:
                yield _parse_details(foreign.parse_object(line))
            except ValueError as error:
                yield Bad(number, str(error))


def read_lines(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a file; None for one that is too long. Raises ConfigError."""
    place = f"{path}: cannot be read"
    with convert_os_errors(ConfigError, place), foreign.open_regular_file(path) as file:
        yield from foreign.read_lines(file, LONGEST)


def select_winners(records: Iterable[RecordDetails]) -> list[RecordDetails]:
    """Return the best record of each workload on each platform, as far as one has a time."""
    best: dict[tuple[str, str, Platform], RecordDetails] = {}
    for record in records:
        key = (record.record.workload, record.identity, record.platform)
        before = best.get(key)
        sound = record.wrong is None and record.believed.median < math.inf
        if sound and (before is None or record.rank < before.rank):
            best[key] = record
    return list(best.values())


def _format_line(details: RecordDetails) -> str:
    content: dict[str, object] = {
        **details.record._asdict(),
        "seconds": [v if math.isfinite(v) else str(v) for v in details.record.seconds],
        **{name: _parse_if_canonical(text) for name, text in details.platform._asdict().items()},
        "identity": details.identity,
        "about": details.about and details.about.json(),
        "wrong": details.wrong,
    }
    content["checksum"] = digest_json(content)
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _parse_details(content: dict[str, Any]) -> RecordDetails:
    """Return the record of a line. Raises ValueError."""
    if content.pop("checksum", None) != digest_json(content):
        raise ValueError("its checksum is wrong")
    about, wrong = content.pop("about", None), content.pop("wrong", None)
    details = RecordDetails(
        platform=fields.parse_platform({name: content.pop(name, None) for name in _PLATFORM}),
        identity=fields.check_text(content.pop("identity", None), "identity"),
        about=None if about is None else WorkloadInfo.from_json(about),
        wrong=fields.check_optional_text(wrong, "wrong"),
        record=fields.parse_record(content),
        id=0,
    )
    _check_harmless(details.record)
    return details


def _check_harmless(record: Record) -> None:
    """Raise ValueError for a schedule with forbidden instructions."""
    try:
        check_schedule(record.schedule)
    except Forbidden as error:
        label = f"workload {format_value(record.workload)}, engine {format_value(record.engine)}"
        raise ValueError(f"{label}: {error}") from None


def _to_sort_key(details: RecordDetails) -> tuple[object, ...]:
    record = details.record
    return (
        record.workload, details.identity, details.platform, record.engine,
        record.implementation, record.schedule, record.measured, record.session,
        record.checksum(details.platform),
    )  # fmt: skip


def _parse_if_canonical(text: str) -> object:
    """Return the JSON value that a text is, if it can be written as that again."""
    try:
        value = foreign.parse_object(text)
        return value if _to_canonical_json(value) == text else text
    except foreign.MalformedError:
        return text


def _to_canonical_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
