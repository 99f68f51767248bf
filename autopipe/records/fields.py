"""The fields of a record as another wrote them: types and ranges, before anything is made of them.

Every function raises ValueError with a one-line explanation.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from autopipe.config.problem import format_value
from autopipe.records.record import Platform, Record

_NAME: Final = 200
"""Characters of a name."""
LONG: Final = 1 << 20
"""Characters of an error, or of a platform field."""
_SCHEDULE: Final = 1 << 24
_REPEATS: Final = 10_000
_TENSORS: Final = 10_000
_NONE: Final = ("inf", "-inf", "nan")
"""How a time is written that is none."""
_HASH: Final = re.compile(r"[0-9a-f]{1,64}")

_PLATFORM: Final = ("target", "versions", "device")


def parse_record(content: Mapping[str, object]) -> Record:
    """Return the record that has exactly these fields."""
    _check_field_names(content, _RECORD)
    return Record(**{name: kind(content[name], name) for name, kind in _RECORD.items()})


def parse_platform(content: Mapping[str, object]) -> Platform:
    """Return where a record holds; each field is JSON, or the text that is kept of it."""
    _check_field_names(content, _PLATFORM)
    return Platform(*(_to_json_text(content[name], name) for name in _PLATFORM))


def check_text(value: object, name: str, longest: int = _NAME) -> str:
    """Return a text that is not too long."""
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError(f"{name} is no text of at most {longest} characters")
    return value


def check_texts(value: object, name: str) -> tuple[str, ...]:
    """Return a list of texts."""
    if not isinstance(value, list) or len(value) > _TENSORS:
        raise ValueError(f"{name} is no list of at most {_TENSORS} texts")
    return tuple(check_text(item, name, LONG) for item in value)


def check_count(value: object, name: str) -> float:
    """Return a number that is not negative."""
    if type(value) not in {int, float} or not 0 <= value < math.inf:  # type: ignore[operator]
        raise ValueError(f"{name} is no number that counts something")
    return float(value)  # type: ignore[arg-type]


def check_optional_text(value: object, name: str) -> str | None:
    """Return a text, or None."""
    return None if value is None else check_text(value, name, LONG)


def parse_times(value: object, name: str = "seconds") -> tuple[float, ...]:
    """Return the seconds of a trial, a value a repeat; those that are none as they are."""
    if not isinstance(value, list | tuple) or len(value) > _REPEATS:
        raise ValueError(f"{name} is no list of at most {_REPEATS} times")
    if not all(type(item) in {int, float} or item in _NONE for item in value):
        raise ValueError(f"{name} holds something that is no time")
    try:
        return tuple(map(float, value))
    except OverflowError:
        raise ValueError(f"{name} holds a time that no clock tells") from None


def check_hash(value: object, name: str) -> str:
    """Return a hash."""
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ValueError(f"{name} is no hash")
    return value


def check_schedule(value: object, name: str) -> str:
    """Check the length of a schedule; return it."""
    return check_text(value, name, _SCHEDULE)


def _check_flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is neither true nor false")  # noqa: TRY004 -- of a file
    return value


def _to_json_text(value: object, name: str) -> str:
    text = value
    if isinstance(value, dict):
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return check_text(text, name, LONG)


def _check_field_names(
    content: Mapping[str, object], names: Sequence[str] | Mapping[str, Any]
) -> None:
    if missing := sorted(set(names) - content.keys()):
        raise ValueError(f"it has no field {missing[0]}")
    if unknown_names := sorted(content.keys() - set(names)):
        raise ValueError(f"it has an unknown field {format_value(unknown_names[0])!r}")


_RECORD: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "workload": check_hash, "engine": check_text, "implementation": check_text,
    "schedule": check_schedule,
    "seconds": parse_times, "error": check_optional_text, "cut": _check_flag,
    "measured": check_text, "session": check_text,
}  # fmt: skip
