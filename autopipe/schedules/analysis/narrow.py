"""Narrows int64 positions to int32 where their values fit.

The result of argmax is int64 in ONNX and Relax. A vector holds half as many of these, and AVX2
compares them slowly. A position that is computed from axes alone has a known bound.

Example: at = select(most >= x[i, k], at, k) with k below 1000. `at` is -1 or some k, so it fits
into int32, and so does every expression that it is compared with. A sum of positions would not: a
step must keep the result or replace it by a value of known bounds.
"""

from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.sym import Analyzer

from autopipe.compiler.find_nodes import find_nodes

NARROW: Final = "int32"
_WIDE: Final = "int64"
_MAX_INT32: Final = (1 << 31) - 1

_PAIRS: Final = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max, tirx.FloorDiv, tirx.FloorMod)
_COMPARISONS: Final = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


class _TooWideError(Exception):
    """A value may not fit into int32."""


def narrow_to_int32(
    results: Sequence[Any],
    starts: Sequence[Expr],
    values: Sequence[Expr],
    analyzer: Analyzer,
) -> tuple[list[Any], list[Expr], list[Expr]] | None:
    """Return int32 buffers, starts and steps for int64 results; None if values may not fit.

    `results` are the buffers of results, `starts` their initial values, `values` those after a
    step; `analyzer` has the ranges of axes.
    """
    wide = [str(result.dtype) == _WIDE for result in results]
    if not any(wide):
        return None
    buffers = [
        tirx.decl_buffer(result.shape, NARROW, f"{result.name}_narrow") if is_wide else result
        for result, is_wide in zip(results, wide, strict=True)
    ]
    rewriting = _Rewriting(results, buffers, analyzer)
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
    """Rewrites expressions to int32. Raises _TooWideError where a value may not fit."""

    def __init__(self, results: Sequence[Any], buffers: Sequence[Any], analyzer: Analyzer) -> None:
        self._pairs, self._known = list(zip(results, buffers, strict=True)), analyzer

    def chosen(self, value: tvm.ir.Expr, result: tvm.ir.Expr) -> Expr:
        """Rewrite a step of an int64 result, which must keep it or take a bounded value."""
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
        """Rewrite the int64 parts of an expression to int32."""
        kind = str(value.ty.dtype)
        if isinstance(value, TensorLoad):
            return self._rewrite_load(value)
        if isinstance(value, tirx.Select):
            parts = (value.condition, value.true_value, value.false_value)
            return tirx.Select(*map(self.of, parts))
        if isinstance(value, (tirx.And, tirx.Or, *_COMPARISONS)):
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
        """Rewrite an int64 expression of axes, if it and its subexpressions fit into int32."""
        bound = self._known.const_int_bound(value)
        if int(bound.min_value) < -_MAX_INT32 or int(bound.max_value) > _MAX_INT32:
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
        """Return an expression of another dtype, if it reads no int64 result."""
        loads = find_nodes(value, TensorLoad)
        wide = [one for one, other in self._pairs if not one.same_as(other)]
        if any(load.source.same_as(one) for load in loads for one in wide):
            raise _TooWideError
        return value
