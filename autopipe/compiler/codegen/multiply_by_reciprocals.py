"""Replace division by a loop invariant by multiplication with its reciprocal.

A division of vectors takes a core five times as long as a product. The pass rewrites functions that
may round differently, and none that rounds to integers: half a unit decides there. Constants, such
as the root of two in GELU, are replaced by their reciprocals everywhere if these have all bits.

Example: the last step of a softmax.

    for step in range(64):
        y[8 * step : 8 * step + 8] = e[8 * step : 8 * step + 8] / total[0]

becomes the following, and LLVM hoists `1 / total[0]` out of the loop:

    for step in range(64):
        y[8 * step : 8 * step + 8] = e[8 * step : 8 * step + 8] * (1 / total[0])
"""

from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad

from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.graph import elementary

_ROUNDING: Final = frozenset({"tirx.nearbyint", "tirx.round", "tirx.floor", "tirx.ceil"})
_FLOAT: Final = "float32"

_LEAST: Final = 2.0**-126
"""The smallest divisor with a normal reciprocal, and the reciprocal of the largest one."""


def multiply_by_reciprocals(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Divide by loop invariants once in a kernel, after vectorization.

    The reciprocal of a number above 2^126 or below 2^-126 has few bits or none.
    """
    if not elementary.is_marked(function) or _has_rounding(function):
        return function
    by_numbers = tvm_ffi.structural_map(function, (tirx.Div, _multiply_by_constant))
    return tvm_ffi.structural_map(by_numbers, (tirx.For, _rewrite_loop))


def _multiply_by_constant(division: tirx.Div) -> Expr:
    """Multiply by the reciprocal of a constant divisor."""
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
    """Tell whether a function converts floats to integers, as quantization does."""
    rounds: list[bool] = []

    def cast(node: tirx.Cast) -> None:
        rounds.append("float" in str(node.value.ty) and "float" not in str(node.ty))

    def call(node: Call) -> None:
        rounds.append(getattr(node.op, "name", "") in _ROUNDING)

    tvm_ffi.structural_walk(function.body, [(tirx.Cast, cast), (Call, call)])
    return any(rounds)


def _rewrite_loop(loop: tirx.For) -> tirx.For:
    """Multiply by the reciprocals of divisors that are invariant in a loop."""
    divisors = find_nodes(loop.body, tirx.Div)
    if not any(map(_can_rewrite_division, divisors)):
        return loop
    loop_variables: list[tvm.ir.Var] = [loop.loop_var]
    tvm_ffi.structural_walk(
        loop.body,
        [
            (tirx.Bind, lambda bind: loop_variables.append(bind.var)),
            (tirx.Let, lambda let: loop_variables.append(let.var)),
            (tirx.For, lambda inner: loop_variables.append(inner.loop_var)),
            (tirx.BufferStore, lambda store: loop_variables.append(store.buffer)),
            (tirx.AllocBuffer, lambda allocation: loop_variables.append(allocation.buffer)),
        ],
    )

    def product(division: tirx.Div) -> Expr:
        if not _can_rewrite_division(division) or _has_variable(division.b, loop_variables):
            return division
        return division.a * (tirx.div(tirx.const(1, division.b.ty), division.b))

    body = tvm_ffi.structural_map(loop.body, (tirx.Div, product))
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding,
        loop.annotations, loop.step,
    )  # fmt: skip


def _can_rewrite_division(division: tirx.Div) -> bool:
    """Tell whether a division is of floats, its divisor no constant and its dividend not 1."""
    over, under = map(_strip_broadcast, (division.a, division.b))
    return str(under.ty) == _FLOAT and not _is_one(over) and not isinstance(under, tirx.FloatImm)


def _is_one(value: Expr) -> bool:
    return isinstance(value, tirx.FloatImm) and value.value == 1.0


def _strip_broadcast(value: Expr) -> Expr:
    """Return the scalar that a vector broadcasts, or the value itself."""
    return value.value if isinstance(value, tirx.Broadcast) else value


def _has_variable(value: Expr, names: list[tvm.ir.Var]) -> bool:
    """Tell whether an expression reads one of some variables or loads from one of some buffers."""
    variables: list[tvm.ir.Var] = []
    tvm_ffi.structural_walk(
        value,
        [(tvm.ir.Var, variables.append), (TensorLoad, lambda load: variables.append(load.source))],
    )
    return any(variable.same_as(name) for variable in variables for name in names)
