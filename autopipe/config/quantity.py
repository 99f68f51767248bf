"""Quantities with a unit."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema

from autopipe.config.problem import format_value

WRITTEN = "written by a person"
"""Validation context of values from YAML, where a bare number is no duration."""
DURATION = r"^(0|[1-9][0-9]*)(\.[0-9]+)?\s?(ms|s|m|h)$"
"""Pattern of a duration."""
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
_LONGEST = 365 * 24 * 3600.0


def format_duration(seconds: float) -> str:
    """Format seconds with the largest unit that yields an integer."""
    for unit, size in _SECONDS.items():
        if (seconds / size).is_integer():
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds * 1e3:g}ms"


def _parse_seconds(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str):
        match = re.fullmatch(DURATION, value)
        if match is None:
            raise ValueError(
                f"{format_value(repr(value))} is not a duration; write 500ms, 30s, 10m or 1h"
            )
        seconds = float(f"{match[1]}{match[2] or ''}") * _SECONDS[match[3]]
        if not 0 < seconds <= _LONGEST:
            raise ValueError(f"{value!r} should be longer than zero, and a year at most")
        return seconds
    if info.context is WRITTEN and isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"{value} has no unit; write 500ms, 30s, 10m or 1h")
    return value


Duration = Annotated[
    float,
    Field(gt=0, le=_LONGEST),
    BeforeValidator(_parse_seconds),
    WithJsonSchema({"type": "string", "pattern": DURATION}),
]
"""Seconds. In YAML a text with a unit, `500ms`, `30s`, `10m`, `1h`; elsewhere a number."""
