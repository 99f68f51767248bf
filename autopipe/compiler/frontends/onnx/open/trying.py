"""Finds out by trying all sizes whether a condition holds.

TVM's analyzer proves no `x // 2 <= x`. With 512 sizes of `x` all of them are looked at at once.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

import numpy as np
from tvm import tirx

# ruff: noqa: ANN401  what TVM has no types for

_MOST: Final = 2**17
"""Sizes, all combinations, that are tried."""

_OPERATIONS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}


def tried(condition: Any, ranges: Mapping[str, tuple[int, int]]) -> bool | None:
    """Whether a condition holds at every size (True), at none (False), else None.

    Args:
        condition: A condition on open sizes.
        ranges: The first and the last of each size, by its name.

    It is None, too, where there are too many sizes, or one is not bounded.
    """
    names = list(dict.fromkeys(str(size.name) for size in tirx.analysis.undefined_vars(condition)))
    if not names or any(name not in ranges for name in names):
        return None
    sizes = [ranges[name] for name in names]
    if prod(last - first + 1 for first, last in sizes) > _MOST:
        return None
    grids = np.meshgrid(*(np.arange(first, last + 1) for first, last in sizes), indexing="ij")
    found = _value(condition, dict(zip(names, grids, strict=True)))
    if found is None:
        return None
    if found.all():
        return True
    return None if found.any() else False


def _value(number: Any, sizes: Mapping[str, Any]) -> Any:
    """Return a number at all sizes; None where it has something in it that is not known here."""
    if isinstance(number, tirx.IntImm):
        return np.int64(int(number))
    if isinstance(number, tirx.Var):
        return sizes[str(number.name)]
    if isinstance(number, tirx.Not):
        inner = _value(number.a, sizes)
        return None if inner is None else np.logical_not(inner)
    operation = _OPERATIONS.get(type(number))
    if operation is None:
        return None
    one, other = _value(number.a, sizes), _value(number.b, sizes)
    if (
        one is None
        or other is None
        or (operation in {np.floor_divide, np.mod} and not np.all(other))
    ):
        return None
    return operation(one, other)
