"""Checks of the values in a trace: functions that return whether a value is allowed."""

import re
from collections.abc import Callable
from typing import Final

Check = Callable[[object], bool]

_EXTENT: Final = 1 << 31
"""Maximum extent of a loop: no buffer has as many elements."""
_LONGEST: Final = 256
"""Maximum length of a list; a loop nest has a few dozen loops."""


def allow_integer(low: int, high: int) -> Check:
    """Return a check for integers in a range. A boolean is no integer."""
    return lambda value: type(value) is int and low <= value <= high


def allow_text(pattern: str) -> Check:
    """Return a check for text that a regular expression matches from start to end."""
    expression = re.compile(pattern)
    return lambda value: isinstance(value, str) and expression.fullmatch(value) is not None


def allow_quoted(pattern: str) -> Check:
    """Return the same check for text that is an input: TVM puts quotation marks around it."""
    return allow_text(f'"{pattern}"')


def allow_names(*values: str) -> Check:
    """Return a check for a few names."""
    names = frozenset(values)
    return lambda value: isinstance(value, str) and value in names


def allow_either(*checks: Check) -> Check:
    """Return a check for values that at least one of the checks allows."""
    return lambda value: any(check(value) for check in checks)


def allow_list(check: Check, least: int = 0) -> Check:
    """Return a check for a list of bounded length."""
    return lambda value: (
        isinstance(value, list) and least <= len(value) <= _LONGEST and all(map(check, value))
    )


def is_boolean(value: object) -> bool:
    """Return whether a value is a boolean, or the 0 or 1 that TVM writes for one."""
    return isinstance(value, bool) or (type(value) is int and value in {0, 1})


def is_false(value: object) -> bool:
    """Return whether a value is false, or the 0 that TVM writes for it."""
    return is_boolean(value) and not value


def is_null(value: object) -> bool:
    """Return whether a value is null."""
    return value is None


def is_probability(value: object) -> bool:
    """Return whether a value is a probability: a number from 0 to 1."""
    return type(value) in {int, float} and 0 <= value <= 1  # type: ignore[operator]


block: Final = allow_text(r"b\d{1,6}")
"""A block that an earlier instruction returned."""
loop: Final = allow_text(r"l\d{1,6}")
"""A loop that an earlier instruction returned."""
number: Final = allow_text(r"v\d{1,6}")
"""A number that an earlier instruction sampled."""
extent: Final = allow_integer(1, _EXTENT)
factor: Final = allow_either(number, extent, allow_names("None"))
"""The extent of a part of a split loop; one may be None, which is inferred."""
small: Final = allow_integer(0, 1 << 16)
"""Numbers of steps, vector lanes or threads."""
place: Final = allow_integer(-64, 1024)
"""The position of a buffer, an axis or a loop."""
title: Final = allow_text(r"[\w.:@$ -]{1,200}")
"""The name of a block."""
intrinsic: Final = r"(?:dot|wmma|mma)_[A-Za-z0-9_]{1,60}"
"""A tensor intrinsic, which has to be registered in this process."""
