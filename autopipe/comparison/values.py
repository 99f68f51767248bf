"""List the differing values of two mappings."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from autopipe.comparison.build import Fields


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""Stands for an absent value, as distinct from null."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed value; `ABSENT` on a side without one."""

    name: str
    old: object
    new: object


def list_value_changes(old: Fields, new: Fields) -> tuple[Change, ...]:
    """List the names with differing values, sorted; true differs from 1, and 1.0 does not."""
    return tuple(
        Change(name, old.get(name, ABSENT), new.get(name, ABSENT))
        for name in sorted(old.keys() | new.keys())
        if _is_different(old.get(name, ABSENT), new.get(name, ABSENT))
    )


def _is_different(old: object, new: object) -> bool:
    return old != new or isinstance(old, bool) is not isinstance(new, bool)
