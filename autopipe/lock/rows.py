"""The shape of what tuning says of a task, as far as anything is made of it.

Every function returns what it was given, and raises ValueError that says in a line what is wrong.
"""

from collections.abc import Mapping
from typing import Any

from autopipe import foreign
from autopipe.records import fields
from autopipe.records.record import SLOWEST


def task(row: object) -> dict[str, Any]:
    """Check what became of a task."""
    found = _object(row, "tuning")
    fields.count(found.get("task"), "task")
    if not isinstance(found["task"], int):
        raise ValueError("task is no place in a table")  # noqa: TRY004 -- of a file
    fields.text(found.get("name"), "name")
    fields.hashed(found.get("workload"), "workload")
    for name in ("seconds", "share", "over_next", "over_start"):
        if found.get(name) is not None:
            fields.count(found[name], name)
    for each in listed(found.get("contenders", []), "contenders"):
        _object(each, "contenders")
    for each in listed(found.get("failures", []), "failures"):
        fields.text(_object(each, "failures").get("folder"), "folder", fields.LONG)
    return found


def best(record: object) -> dict[str, Any]:
    """Check the best record of a workload."""
    found = _object(record, "record")
    fields.hashed(found.get("workload"), "workload")
    fields.text(found.get("engine"), "engine")
    fields.text(found.get("implementation"), "implementation")
    if type(found.get("trials")) is not int or found["trials"] < 0:
        raise ValueError("trials is no number of trials")
    seconds = fields.times(found.get("seconds"))
    if not seconds or not all(0 < value < SLOWEST for value in seconds):
        raise ValueError("seconds holds something that is no time")
    schedule = foreign.parse(fields.schedule(found.get("schedule"), "schedule"))
    if not isinstance(schedule, list | dict):
        raise ValueError("schedule is neither a trace nor a template")  # noqa: TRY004 -- of a file
    return found


def listed(value: object, name: str) -> list[Any]:
    """Check that it is a list."""
    if not isinstance(value, list):
        raise ValueError(f"{name} is no list")  # noqa: TRY004 -- of a file
    return value


def _object(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is no object")  # noqa: TRY004 -- of a file
    return dict(value)
