"""Right documents with one field that nobody of us would write, to be sealed again by a test."""

import copy
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

OWNED = "\n::error ::owned\r\x1b[2J\u202e\u2066##[error]owned"
"""A name that would forge lines of a log, clear a screen, and turn text around."""

HIDDEN = (
    "\x85", "\u2028", "\u2029", "\r", "\0", "\x0b", "\x0c", "\x1b[8m", "\x7f", "\x9b", "\xad",
    "\u061c", "\u200b", "\u200f", "\u202e", "\u2066", "\ufeff", "\ufff9", "\U000e0041",
)  # fmt: skip
"""What ends a line for some readers, reverses text, erases it, or is not shown."""

MARK = "@@"
TOKENS = (
    "NaN", "-Infinity", "1e999", "1" + "0" * 400, "9" * 5000, '"\\ud800"', '{"a": 1, "a": 2}',
    "[" * 500 + "]" * 500, "[" * 100_000, "",
)  # fmt: skip
"""What no JSON value of ours is, as it is written."""

VALUES: Sequence[Any] = (
    None, True, -1, 2**70, -(2**70), 10**99, 0, 1e308, -1e-308, "", "x", "x" * 1_000_000, OWNED,
    "../../../etc/passwd", "/etc/passwd", "\0", "::add-mask::x", [], {}, [1], [OWNED], {OWNED: 1},
    [[[[]]]], {"a": {"b": None}}, ["x"] * 1000, "__import__('os').system('id')", "nan", "inf",
)  # fmt: skip


def variants(document: Any, count: int, seed: int = 0) -> list[Any]:
    """Return copies in which one value is another, is missing, or is one too many.

    All values are tried on some field, and all fields get some of them.
    """
    chance = random.Random(seed)
    places = list(_places(document))
    values = [(place, value) for place in places for value in VALUES]
    chosen = chance.sample(values, min(count, len(values)))
    chosen += [(chance.choice(places), value) for value in VALUES]
    found = [_with(document, place, value) for place, value in chosen]
    for place in places:
        found.append(_without(document, place))
        if isinstance(_at(document, place), dict):
            found.append(_with(document, (*place, OWNED), 1))
    return found


def texts(document: Any) -> Iterator[str]:
    """Yield what is no JSON, or should be none: a token in the place of some value."""
    places = list(_places(document))
    for number, token in enumerate(TOKENS):
        place = places[(number * 7) % len(places)]
        yield json.dumps(_with(document, place, MARK)).replace(f'"{MARK}"', token)


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    inner: list[tuple[Any, Any]] = list(value.items()) if isinstance(value, dict) else []
    if isinstance(value, list):
        inner = list(enumerate(value))[:2]
    for name, each in inner:
        yield from _places(each, (*at, name))


def _at(document: Any, place: Sequence[Any]) -> Any:
    for name in place:
        document = document[name]
    return document


def _with(document: Any, place: Sequence[Any], value: Any) -> Any:
    made = copy.deepcopy(document)
    _at(made, place[:-1])[place[-1]] = copy.deepcopy(value)
    return made


def _without(document: Any, place: Sequence[Any]) -> Any:
    made = copy.deepcopy(document)
    del _at(made, place[:-1])[place[-1]]
    return made
