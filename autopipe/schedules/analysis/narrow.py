"""Computes positions in 32 bits where a function asks for 64, and 32 are enough.

The position of the largest element has 64 bits in ONNX and Relax. In vectors half as many of these
fit, and AVX2 compares them slowly. A position that is made of axes alone is known to be small.

Example: at = select(most >= x[i, k], at, k) with k below 1000. `at` is -1 or some k, so it has room
in 32 bits, and so has every expression that it is compared with. A sum of positions would not: that
is told by whether a result becomes nothing but itself or a value of known bounds.
"""

from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.sym import Analyzer

from autopipe.schedules.analysis.expressions import find_nodes

NARROW: Final = "int32"
_WIDE: Final = "int64"
_MOST: Final = (1 << 31) - 1

_PAIRS: Final = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max, tirx.FloorDiv, tirx.FloorMod)
_COMPARED: Final = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


class _TooWideError(Exception):
    """Some value may need 64 bits."""


def narrow_to_int32(
    results: Sequence[Any],
    starts: Sequence[Expr],
    values: Sequence[Expr],
    ranges: Sequence[tuple[Any, Any]],
) -> tuple[list[Any], list[Expr], list[Expr]] | None:
    """Return buffers, starts and steps of 32 bits for those of 64; None if that cannot be.

    `results` are the buffers of results, `starts` what they are at first, `values` what they
    become, `ranges` the values of axes.
    """
    wide = [str(result.dtype) == _WIDE for result in results]
    if not any(wide):
        return None
    buffers = [
        tirx.decl_buffer(result.shape, NARROW, f"{result.name}_narrow") if is_wide else result
        for result, is_wide in zip(results, wide, strict=True)
    ]
    rewriting = _Rewriting(results, buffers, ranges)
    try:
        first = [
            rewriting.of(start) if is_wide else start
            for start, is_wide in zip(starts, wide, strict=True)
        ]
        after = [
            rewriting.chosen(value, result) if is_wide else rewriting.of(value)
            for value, result, is_wide in zip(values, results, wide, strict=True)
        ]
    except _TooWideError:
        return None
    return buffers, first, after


class _Rewriting:
    """Rewrites expressions to 32 bits. Raises _TooWideError where that could change a value."""

    def __init__(
        self, results: Sequence[Any], buffers: Sequence[Any], ranges: Sequence[tuple[Any, Any]]
    ) -> None:
        self._pairs = list(zip(results, buffers, strict=True))
        self._known = Analyzer()
        for var, values in ranges:
            self._known.bind(var, values)

    def chosen(self, value: tvm.ir.Expr, result: tvm.ir.Expr) -> Expr:
        """Return a step of a wide result, which is to stay what it is or become what has room."""
        if isinstance(value, tirx.Select):
            sides = value.true_value, value.false_value
        elif isinstance(value, (tirx.Min, tirx.Max)):
            sides = value.a, value.b
        else:
            raise _TooWideError
        is_own_result = [
            isinstance(side, TensorLoad) and side.source.same_as(result) for side in sides
        ]
        if is_own_result.count(True) != 1:
            raise _TooWideError
        return self.of(value)

    def of(self, value: tvm.ir.Expr) -> Expr:
        """Return an expression in which what had 64 bits has 32."""
        kind = str(value.ty.dtype)
        if isinstance(value, TensorLoad):
            return self._rewrite_load(value)
        if isinstance(value, tirx.Select):
            parts = (value.condition, value.true_value, value.false_value)
            return tirx.Select(*map(self.of, parts))
        if isinstance(value, (tirx.And, tirx.Or, *_COMPARED)):
            return type(value)(self.of(value.a), self.of(value.b))
        if isinstance(value, tirx.Not):
            return tirx.Not(self.of(value.a))
        return self._rewrite_number(value) if kind == _WIDE else self._rewrite_other(value)

    def _rewrite_load(self, load: TensorLoad) -> Expr:
        narrow_buffers = [buffer for result, buffer in self._pairs if load.source.same_as(result)]
        if narrow_buffers:
            return narrow_buffers[0][tuple(load.indices)]
        if str(load.ty.dtype) == _WIDE:
            raise _TooWideError
        return load

    def _rewrite_number(self, value: tvm.ir.Expr) -> Expr:
        """Return a number made of axes, if it and all that it is made of have room."""
        bound = self._known.const_int_bound(value)
        if int(bound.min_value) < -_MOST or int(bound.max_value) > _MOST:
            raise _TooWideError
        if isinstance(value, tirx.IntImm):
            return tirx.const(int(value), NARROW)
        if isinstance(value, tirx.Var):
            return tirx.Cast(NARROW, value)
        if isinstance(value, tirx.Cast) and str(value.value.ty.dtype) in {NARROW, _WIDE}:
            return self.of(value.value)
        if isinstance(value, _PAIRS):
            return type(value)(self.of(value.a), self.of(value.b))
        raise _TooWideError

    def _rewrite_other(self, value: tvm.ir.Expr) -> Expr:
        """Return what has no 64 bits, if nothing in it reads a result that had them."""
        loads = find_nodes(value, TensorLoad)
        wide = [one for one, other in self._pairs if not one.same_as(other)]
        if any(load.source.same_as(one) for load in loads for one in wide):
            raise _TooWideError
        return value
