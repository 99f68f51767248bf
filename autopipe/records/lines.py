"""The text form of records: one canonical JSON line each, made for git and for a lock."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass
from typing import Any

from autopipe.pipeline.canonical import digest
from autopipe.records.about import About
from autopipe.records.record import Platform, Record
from autopipe.records.store import Found


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that is no sound record."""

    number: int
    """Its place in the file, from 1."""
    reason: str


def write(found: Iterable[Found]) -> str:
    """Write records as lines: sorted by workload, platform and schedule, whatever their order."""
    return "".join(f"{_line(each)}\n" for each in sorted(found, key=_place))


def read(text: str) -> tuple[list[Found], list[Bad]]:
    """Read what `write` wrote; a damaged line costs itself."""
    found: list[Found] = []
    bad: list[Bad] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(_parsed(json.loads(line)))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            bad.append(Bad(number, str(error) or type(error).__name__))
    return found, bad


def winners(found: Iterable[Found]) -> list[Found]:
    """Return the best record of each workload on each platform, as far as one has a time."""
    best: dict[tuple[str, str, Platform], Found] = {}
    for each in found:
        key = (each.record.workload, each.identity, each.platform)
        known = best.get(key)
        sound = each.wrong is None and each.believed.median < math.inf
        if sound and (known is None or each.rank < known.rank):
            best[key] = each
    return list(best.values())


def _line(found: Found) -> str:
    content: dict[str, object] = {
        **asdict(found.record),
        "seconds": [v if math.isfinite(v) else str(v) for v in found.record.seconds],
        **{name: _opened(text) for name, text in asdict(found.platform).items()},
        "identity": found.identity,
        "about": found.about and found.about.json(),
        "wrong": found.wrong,
    }
    content["checksum"] = digest(content)
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _parsed(content: dict[str, Any]) -> Found:
    if content.pop("checksum") != digest(content):
        raise ValueError("its checksum is wrong")
    about, identity, wrong = (content.pop(name) for name in ("about", "identity", "wrong"))
    platform = Platform(*(_closed(content.pop(n)) for n in ("target", "versions", "device")))
    seconds = tuple(map(float, content.pop("seconds")))
    record = Record(seconds=seconds, **content)
    return Found(0, record, platform, identity, about and About.from_json(about), wrong)


def _place(found: Found) -> tuple[object, ...]:
    record = found.record
    return (
        record.workload, found.identity, astuple(found.platform), record.engine,
        record.implementation, record.schedule, record.measured, record.session,
        record.checksum(found.platform),
    )  # fmt: skip


def _opened(text: str) -> object:
    """Return the JSON value that a text is, if it can be written as that again."""
    try:
        value = json.loads(text)
        return value if isinstance(value, dict) and _closed(value) == text else text
    except (ValueError, RecursionError):
        return text


def _closed(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
