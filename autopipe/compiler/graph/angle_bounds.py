"""Bound the argument of a trigonometric function that is computed from indices alone.

Example: the window `cos(6.28 * cast(i, float32) / 100)` for i from 0 to 99: 6.28 at most. Such an
argument needs no check for huge values at run time.
"""

import math
from collections.abc import Callable
from typing import Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, Range
from tvm.s_tir import SBlock
from tvm.sym import Analyzer

Bound = Callable[[Expr], float]
"""Returns an upper bound of the magnitude of an expression; infinity without a bound."""

_UNBOUNDED: Final = 2.0**62
"""TVM's bounds of unbounded integers lie beyond."""


def make_magnitude_bound(function: tirx.PrimFunc) -> Bound:
    """Build a magnitude bound of a function's expressions from the ranges of loops and axes."""
    analyzer = Analyzer()

    def loop(node: tirx.For) -> None:
        analyzer.bind(node.loop_var, Range.from_min_extent(node.min, node.extent))

    def block(node: SBlock) -> None:
        for axis in node.iter_vars:
            analyzer.bind(axis.var, axis.dom)

    tvm_ffi.structural_walk(function.body, (tirx.For, loop))
    tvm_ffi.structural_walk(function.body, (SBlock, block))
    return lambda value: _bound_magnitude(value, analyzer)


def _bound_magnitude(value: Expr, analyzer: Analyzer) -> float:
    if str(value.ty).startswith("int"):  # unsigned integers wrap below zero
        bound = analyzer.const_int_bound(value)
        magnitude = max(abs(int(bound.min_value)), abs(int(bound.max_value)))
        return float(magnitude) if magnitude < _UNBOUNDED else math.inf
    if isinstance(value, tirx.FloatImm):
        return abs(float(value.value))
    if isinstance(value, tirx.Cast):
        return _bound_magnitude(value.value, analyzer)
    if isinstance(value, tirx.Mul | tirx.Add | tirx.Sub):
        left, right = _bound_magnitude(value.a, analyzer), _bound_magnitude(value.b, analyzer)
        return left * right if isinstance(value, tirx.Mul) else left + right
    if isinstance(value, tirx.Div) and isinstance(value.b, tirx.FloatImm) and value.b.value:
        return _bound_magnitude(value.a, analyzer) / abs(float(value.b.value))
    return math.inf
