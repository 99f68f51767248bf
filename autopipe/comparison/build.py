"""The facts of a build, read from any kind of file, and their differences."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from autopipe.lock.recognize import FileKind

Fields = Mapping[str, object]
"""Values by dotted name, such as `tuning.budget.trials`."""


@dataclass(frozen=True, slots=True)
class Time:
    """A measured time in seconds, with its spread if known."""

    median: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class BuiltTask:
    """A task with its schedule and the time of a call."""

    name: str
    workload: str
    decisions: Mapping[str, object]
    """The choices that determine its code, such as `engine`; a schedule is a mapping or text."""
    time: Time | None
    steps: tuple[str, ...] | None = None
    """The steps of its trace, one per line; None without a trace, or if the file has none."""


@dataclass(frozen=True, slots=True)
class ContenderTime:
    """The end-to-end time of the build or of a reference runtime."""

    version: str
    time: Time
    disturbed: bool = False
    """Whether other programs ran during the measurement."""


@dataclass(frozen=True, slots=True)
class Build:
    """The facts of a build in a file; missing ones are None."""

    kind: FileKind
    file: str
    pipeline: str
    facts: Mapping[str, Fields]
    """By topic: `outcome`, `configuration`, `target`, `versions`, `sources`, `size`, `accuracy`,
    `artifacts`.

    Sizes are bytes, artifacts the sha256 of a file.
    """
    tasks: tuple[BuiltTask, ...] | None = None
    latency: Mapping[str, ContenderTime] | None = None
    """Seconds of a run of the model, by runtime; the build is `autopipe`."""
    machine: Fields = field(default_factory=dict)
    """The machine on which the times were measured, as far as known."""


def flatten_document(value: object, at: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of a document by dotted name; a list is one value unless it holds mappings.

    >>> dict(flat({"a": {"b": 1}, "c": [1, 2], "d": [{"e": 2}]}))
    {'a.b': 1, 'c': [1, 2], 'd.0.e': 2}
    """
    inner: Iterator[tuple[object, object]]
    if isinstance(value, Mapping) and (value or not at):
        inner = iter(value.items())
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        inner = iter(enumerate(value))
    else:
        yield at, value
        return
    for name, item in inner:
        yield from flatten_document(item, f"{at}.{name}" if at else str(name))


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
