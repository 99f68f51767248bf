"""The features of a setting for the cost model: its knobs, and the match of the template.

The cost of a tile depends on products of knobs (the elements of a tile) and on quotients of extents
and knobs (the number of tiles). So both are features, beside the knobs themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from autopipe.schedules.engines.knobs.space import Space

Column = npt.NDArray[np.float32]
Features = Mapping[str, Column]
"""Columns of one number per setting, by name."""


def compute_features(space: Space) -> Features:
    """Compute the features of each setting of a space, without measurements."""
    return combine_features(space, list_knob_values(space), list_estimates(space))


def combine_features(space: Space, knobs: Features, estimates: Column | None) -> Features:
    """Compute the features of each setting from its knobs as numbers, and its estimates."""
    size = len(space.settings)
    numbers = [
        (name, n) for name, n in _list_numbers("function", space.served.match) if "=" not in name
    ]
    facts = {name: np.full(size, number, np.float32) for name, number in numbers}
    columns: dict[str, Column] = {**knobs, **facts}
    if estimates is not None:
        columns["estimate"] = estimates / estimates.min()
    for (first_name, first), (second_name, second) in combinations(knobs.items(), 2):
        columns[f"{first_name}*{second_name}"] = first * second
    for fact, extents in facts.items():
        for name, part in knobs.items():
            columns[f"{fact}/{name}"] = (extents / np.maximum(part, 1)).astype(np.float32)
    return columns


def list_estimates(space: Space) -> Column | None:
    """List the template's estimate of each setting, in its own unit; None if it has none."""
    served = space.served
    times = []
    for knobs in space.settings:
        time = served.template.estimate(served.match, knobs, space.hardware)
        if time is None:
            return None
        times.append(time)
    return np.array(times, np.float32)


def list_knob_values(space: Space) -> Features:
    """List the knobs of each setting as numbers; strings are one-hot columns."""
    rows = [dict(_list_numbers("knobs", knobs)) for knobs in space.settings]
    names = sorted({name for row in rows for name in row})
    return {name: np.array([row.get(name, 0) for row in rows], np.float32) for name in names}


def _list_numbers(name: str, value: object) -> Iterator[tuple[str, float]]:
    """Yield the numbers in a value. The elements of a list are numbered from its end."""
    if isinstance(value, bool | int | float):
        yield name, float(value)
    elif isinstance(value, str):
        yield f"{name}={value}", 1.0
    elif isinstance(value, Sequence):
        for position, item in enumerate(value):
            yield from _list_numbers(f"{name}.{position - len(value)}", item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in _list_field_names(type(value)):
            yield from _list_numbers(f"{name}.{field}", getattr(value, field))


@cache
def _list_field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
