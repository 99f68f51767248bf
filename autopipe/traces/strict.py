"""JSON that says one thing only: no NaN, no infinity, no key twice."""

import json
import math
from typing import Any


def parsed(text: str) -> Any:  # noqa: ANN401 - a JSON document
    """Return the value. Raises ValueError."""
    try:
        return json.loads(
            text, parse_constant=_constant, parse_float=_float, object_pairs_hook=_once
        )
    except RecursionError:
        raise ValueError("nested too deep") from None


def _constant(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is no number")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found
