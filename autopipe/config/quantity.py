"""Quantities that people write with a unit."""

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        if isinstance(value, float):  # a value read back from JSON
            return value
        message = f"{value!r} has no unit; write 500ms, 30s, 10m or 1h"
        raise ValueError(message)
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        message = f"{value!r} is not a duration; write 500ms, 30s, 10m or 1h"
        raise ValueError(message)
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds <= 0:
        message = "a duration must be longer than zero"
        raise ValueError(message)
    return seconds


Duration = Annotated[
    float,
    BeforeValidator(_seconds),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?\s*(ms|s|m|h)$"}),
]
"""Seconds, written with a unit: `500ms`, `30s`, `10m`, `1h`."""
