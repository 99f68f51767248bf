"""Divides by what stays the same in a loop once: what changes is multiplied by its reciprocal.

A division of vectors takes a core five times as long as a product. It is done where functions may
round differently, and where none rounds to whole numbers: half a unit decides there. Numbers are
divided by in no loop at all, such as the root of two in GELU, if their reciprocals have all bits.

Example: the last step of a softmax.

    for step in range(64):
        y[8 * step : 8 * step + 8] = e[8 * step : 8 * step + 8] / total[0]

becomes the following, and LLVM takes `1 / total[0]` out of the loop:

    for step in range(64):
        y[8 * step : 8 * step + 8] = e[8 * step : 8 * step + 8] * (1 / total[0])
"""

from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad

from autopipe.compiler.graph import elementary

_ROUNDING: Final = frozenset({"tirx.nearbyint", "tirx.round", "tirx.floor", "tirx.ceil"})
_FLOAT: Final = "float32"

_LEAST: Final = 2.0**-126
"""The least divisor, and the reciprocal of the largest, whose reciprocals have all their bits."""


def multiply_by_reciprocals(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel, after its vectors were made, that divides by what a loop leaves alone once.

    The reciprocal of a number above 2^126 or below 2^-126 has few bits or none.
    """
    if not elementary.is_marked(function) or _has_rounding(function):
        return function
    by_numbers = tvm_ffi.structural_map(function, (tirx.Div, _multiply_by_constant))
    return tvm_ffi.structural_map(by_numbers, (tirx.For, _rewrite_loop))


def _multiply_by_constant(division: tirx.Div) -> Expr:
    """Return the product with the reciprocal where a number is divided by."""
    over, under = map(_strip_broadcast, (division.a, division.b))
    if str(under.ty) != _FLOAT or not isinstance(under, tirx.FloatImm) or _is_one(over):
        return division
    if not _LEAST <= abs(under.value) <= 1 / _LEAST:
        return division
    reciprocal = tirx.FloatImm(_FLOAT, 1 / under.value)
    if isinstance(division.b, tirx.Broadcast):
        return division.a * tirx.Broadcast(reciprocal, division.b.lanes)
    return division.a * reciprocal


def _has_rounding(function: tirx.PrimFunc) -> bool:
    """Tell whether a function makes whole numbers of others, as quantization does."""
    found: list[bool] = []

    def cast(one: tirx.Cast) -> None:
        found.append("float" in str(one.value.ty) and "float" not in str(one.ty))

    def call(one: Call) -> None:
        found.append(getattr(one.op, "name", "") in _ROUNDING)

    tvm_ffi.structural_walk(function.body, [(tirx.Cast, cast), (Call, call)])
    return any(found)


def _rewrite_loop(loop: tirx.For) -> tirx.For:
    """Return a loop whose divisors that stay the same are divided by once."""
    divisors: list[tirx.Div] = []
    tvm_ffi.structural_walk(loop.body, (tirx.Div, divisors.append))
    if not any(map(_can_rewrite_division, divisors)):
        return loop
    own: list[tvm.ir.Var] = [loop.loop_var]
    tvm_ffi.structural_walk(
        loop.body,
        [
            (tirx.Bind, lambda bind: own.append(bind.var)),
            (tirx.Let, lambda bound: own.append(bound.var)),
            (tirx.For, lambda inner: own.append(inner.loop_var)),
            (tirx.BufferStore, lambda store: own.append(store.buffer)),
            (tirx.AllocBuffer, lambda made: own.append(made.buffer)),
        ],
    )

    def product(division: tirx.Div) -> Expr:
        if not _can_rewrite_division(division) or _has_variable(division.b, own):
            return division
        return division.a * (tirx.div(tirx.const(1, division.b.ty), division.b))

    body = tvm_ffi.structural_map(loop.body, (tirx.Div, product))
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding,
        loop.annotations, loop.step,
    )  # fmt: skip


def _can_rewrite_division(division: tirx.Div) -> bool:
    """Tell whether a division is one of floats, by no constant and not of 1."""
    over, under = map(_strip_broadcast, (division.a, division.b))
    return str(under.ty) == _FLOAT and not _is_one(over) and not isinstance(under, tirx.FloatImm)


def _is_one(value: Expr) -> bool:
    return isinstance(value, tirx.FloatImm) and value.value == 1.0


def _strip_broadcast(value: Expr) -> Expr:
    """Return what all elements of a vector are, if it is made of one number."""
    return value.value if isinstance(value, tirx.Broadcast) else value


def _has_variable(value: Expr, names: list[tvm.ir.Var]) -> bool:
    """Tell whether an expression uses one of some variables, or loads from one of these buffers."""
    used: list[tvm.ir.Var] = []
    tvm_ffi.structural_walk(
        value,
        [(tvm.ir.Var, used.append), (TensorLoad, lambda load: used.append(load.source))],
    )
    return any(one.same_as(name) for one in used for name in names)
