"""Tells how large the angle of a circular function may become, where it is made of indices alone.

Example: the window `cos(6.28 * cast(i, float32) / 100)` for i from 0 to 99: 6.28 at most. Nobody
has to ask at run time whether such an angle is huge.
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
"""Gives the largest absolute value of an expression; infinity where that is not known."""

_UNBOUNDED: Final = 2.0**62
"""TVM's bounds of integers that have none lie beyond."""


def make_magnitude_bound(function: tirx.PrimFunc) -> Bound:
    """Return what bounds the expressions of a function, by the ranges of its loops and axes."""
    known = Analyzer()

    def loop(found: tirx.For) -> None:
        known.bind(found.loop_var, Range.from_min_extent(found.min, found.extent))

    def block(found: SBlock) -> None:
        for axis in found.iter_vars:
            known.bind(axis.var, axis.dom)

    tvm_ffi.structural_walk(function.body, (tirx.For, loop))
    tvm_ffi.structural_walk(function.body, (SBlock, block))
    return lambda value: _bound_magnitude(value, known)


def _bound_magnitude(value: Expr, known: Analyzer) -> float:
    if str(value.ty).startswith("int"):  # what has no sign wraps below zero
        found = known.const_int_bound(value)
        most = max(abs(int(found.min_value)), abs(int(found.max_value)))
        return float(most) if most < _UNBOUNDED else math.inf
    if isinstance(value, tirx.FloatImm):
        return abs(float(value.value))
    if isinstance(value, tirx.Cast):
        return _bound_magnitude(value.value, known)
    if isinstance(value, tirx.Mul | tirx.Add | tirx.Sub):
        one, other = _bound_magnitude(value.a, known), _bound_magnitude(value.b, known)
        return one * other if isinstance(value, tirx.Mul) else one + other
    if isinstance(value, tirx.Div) and isinstance(value.b, tirx.FloatImm) and value.b.value:
        return _bound_magnitude(value.a, known) / abs(float(value.b.value))
    return math.inf
