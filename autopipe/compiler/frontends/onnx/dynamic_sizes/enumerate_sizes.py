"""Decide conditions on dynamic sizes by evaluating them for all sizes.

TVM's analyzer does not prove `x // 2 <= x`. NumPy evaluates it for all 512 sizes of `x` at once.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

import numpy as np
from tvm import tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.reading.tensors import Array

_MOST: Final = 2**17
"""Maximum number of evaluated combinations of sizes."""

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


def decide_condition(condition: Expr, ranges: Mapping[str, tuple[int, int]]) -> bool | None:
    """Whether a condition is true for all sizes (True), for none (False), else None.

    Args:
        condition: A condition on dynamic sizes.
        ranges: The first and the last value of each size, by name.

    It is None, too, where there are too many combinations, or a size is not bounded.
    """
    names = list(dict.fromkeys(str(size.name) for size in tirx.analysis.undefined_vars(condition)))
    if not names or any(name not in ranges for name in names):
        return None
    sizes = [ranges[name] for name in names]
    if prod(last - first + 1 for first, last in sizes) > _MOST:
        return None
    grids = np.meshgrid(*(np.arange(first, last + 1) for first, last in sizes), indexing="ij")
    truths = _evaluate_expression(condition, dict(zip(names, grids, strict=True)))
    if truths is None:
        return None
    if truths.all():
        return True
    return None if truths.any() else False


def _evaluate_expression(number: Expr, sizes: Mapping[str, Array]) -> Array | None:
    """Return the values of an expression for all sizes; None if an operation is not supported."""
    if isinstance(number, tirx.IntImm):
        return np.array(int(number), np.int64)
    if isinstance(number, tirx.Var):
        return sizes[str(number.name)]
    if isinstance(number, tirx.Not):
        inner = _evaluate_expression(number.a, sizes)
        return None if inner is None else np.logical_not(inner)
    operation = _OPERATIONS.get(type(number))
    if operation is None:
        return None
    left, right = _evaluate_expression(number.a, sizes), _evaluate_expression(number.b, sizes)
    if (
        left is None
        or right is None
        or (operation in {np.floor_divide, np.mod} and not np.all(right))
    ):
        return None
    return operation(left, right)
