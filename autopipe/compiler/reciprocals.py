"""Divides by what stays the same in a loop once: what changes is multiplied by its reciprocal.

A division of vectors takes a core five times as long as a product. It is done where functions may
round differently, and where none rounds to whole numbers: half a unit decides there.

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


def multiplied(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel, after its vectors were made, that divides by what a loop leaves alone once.

    The reciprocal of a number above 2^126 or below 2^-126 has few bits or none.
    """
    if not elementary.marked(function) or _rounds(function):
        return function
    return tvm_ffi.structural_map(function, (tirx.For, _loop))


def _rounds(function: tirx.PrimFunc) -> bool:
    """Tell whether a function makes whole numbers of others, as quantization does."""
    found: list[bool] = []

    def cast(one: tirx.Cast) -> None:
        found.append("float" in str(one.value.ty) and "float" not in str(one.ty))

    def call(one: Call) -> None:
        found.append(getattr(one.op, "name", "") in _ROUNDING)

    tvm_ffi.structural_walk(function.body, [(tirx.Cast, cast), (Call, call)])
    return any(found)


def _loop(loop: tirx.For) -> tirx.For:
    """Return a loop whose divisors that stay the same are divided by once."""
    divisors: list[tirx.Div] = []
    tvm_ffi.structural_walk(loop.body, (tirx.Div, divisors.append))
    if not any(map(_counts, divisors)):
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
        if not _counts(division) or _uses(division.b, own):
            return division
        return division.a * (tirx.div(tirx.const(1, division.b.ty), division.b))

    body = tvm_ffi.structural_map(loop.body, (tirx.Div, product))
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding,
        loop.annotations, loop.step,
    )  # fmt: skip


def _counts(division: tirx.Div) -> bool:
    """Tell whether a division is one of floats, by no constant and not of 1."""
    over, under = map(_element, (division.a, division.b))
    is_one = isinstance(over, tirx.FloatImm) and over.value == 1.0
    return str(under.ty) == _FLOAT and not is_one and not isinstance(under, tirx.FloatImm)


def _element(value: Expr) -> Expr:
    """Return what all elements of a vector are, if it is made of one number."""
    return value.value if isinstance(value, tirx.Broadcast) else value


def _uses(value: Expr, names: list[tvm.ir.Var]) -> bool:
    """Tell whether an expression uses one of some variables, or loads from one of these buffers."""
    used: list[tvm.ir.Var] = []
    tvm_ffi.structural_walk(
        value,
        [(tvm.ir.Var, used.append), (TensorLoad, lambda load: used.append(load.source))],
    )
    return any(one.same_as(name) for one in used for name in names)
