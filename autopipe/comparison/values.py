"""Which values of two mappings differ."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from autopipe.comparison.build import Fields


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""Stands for a value that is not there, which null is."""


@dataclass(frozen=True, slots=True)
class Change:
    """A value that is another one now; `ABSENT` where there is none."""

    name: str
    old: object
    new: object


def list_value_changes(old: Fields, new: Fields) -> tuple[Change, ...]:
    """Return every name whose values differ, sorted; true is not 1, and 1.0 is."""
    return tuple(
        Change(name, old.get(name, ABSENT), new.get(name, ABSENT))
        for name in sorted(old.keys() | new.keys())
        if _is_different(old.get(name, ABSENT), new.get(name, ABSENT))
    )


def _is_different(old: object, new: object) -> bool:
    return old != new or isinstance(old, bool) is not isinstance(new, bool)
