"""Expand sine, cosine and tangent to vectorized arithmetic, for arguments that are not huge.

Multiples of pi / 2 are subtracted in double precision (Cody and Waite). Arguments beyond some
million would lose too many digits. A loop after the vectors checks for these and computes them by
libm; in most models there are none. The coefficients are our own minimax fits.

Example: the sines of 32 numbers.

    for i in vectorized(32):                 # before: 32 calls of libm
        out[i] = sin(x[i])

    for i in vectorized(32):                 # after
        out[i] = arithmetic of x[i]
    for i in unrolled(32):
        if not abs(x[i]) < 2^22:             # NaN, too
            out[i] = sin(x[i])

Angles that are computed from indices, such as those of a window, have a static bound
(`angle_bounds.py`). They need no second loop, and are arithmetic in any loop.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import BufferStore

from autopipe.compiler.find_nodes import find_nodes, list_loads
from autopipe.compiler.graph.angle_bounds import make_magnitude_bound
from autopipe.compiler.graph.arithmetic import SINGLE, build_let, evaluate_polynomial
from autopipe.compiler.loops.copy_loops import copy_loop_nest

_DOUBLE: Final = "float64"

_MOST: Final = 2.0**22
"""Largest argument with exact products of its multiple of pi / 2."""

_PARTS: Final = (1.570796325802803, 9.920935774287987e-10, 2.2517417741562176e-18)
"""Pi / 2 in parts: the first two have 29 bits, so that multiples of them are exact."""

_ROUND: Final = 1.5 * 2.0**52
"""Adding it rounds a float64 to an integer, which is then in the last bits."""

_SIN: Final = (
    1.0, -0.16666666640776132, 0.008333329302405417, -0.00019839311481698735,
    2.718114083204333e-06,
)  # fmt: skip
"""sin(r) / r in r^2 for |r| <= pi / 4, to 6e-12."""

_COS: Final = (
    1.0, -0.5, 0.0416666666194507, -0.0013888883496637496, 2.479945925772727e-05,
    -2.720568066098719e-07,
)  # fmt: skip
"""cos(r) in r^2 for |r| <= pi / 4, to 2e-13."""


class _Turn(NamedTuple):
    """An angle as a number of quarter turns, and sine and cosine of the remainder."""

    quarters: Expr
    """int64, of which the last two bits matter."""
    sine: Expr
    """Of the remainder."""
    cosine: Expr


def expand_circular(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Expand the trigonometric functions in the vectorized loops of a function.

    An angle with a static bound may be in any loop.
    """
    if not has_circular_calls(function):
        return function
    bound = make_magnitude_bound(function)

    def small(call: Call) -> Expr:
        return _expand_call(call) if _is_circular(call) and bound(call.args[0]) < _MOST else call

    function = tvm_ffi.structural_map(function, (Call, small))
    return tvm_ffi.structural_map(function, (tirx.For, _split_huge_angles))


def has_circular_calls(function: tirx.PrimFunc) -> bool:
    """Tell whether a function calls any trigonometric function, in any loop."""
    calls = find_nodes(function.body, Call)
    return any(map(_is_circular, calls))


def _split_huge_angles(loop: tirx.For) -> tirx.Stmt:
    """Expand a vectorized loop, and add a loop after it for huge arguments."""
    block = loop.body.block if isinstance(loop.body, SBlockRealize) else None
    store = block.body if block is not None else loop.body
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(store, BufferStore):
        return loop
    arguments = _list_angles(store)
    if not arguments or (block is not None and block.init is not None):
        return loop
    huge = tirx.any(*(tirx.Not(tirx.abs(x) < tirx.const(_MOST, x.ty)) for x in arguments))

    def stored(by: Callable[[Call], Expr]) -> BufferStore:
        value = tvm_ffi.structural_map(store.value, (Call, by))
        return BufferStore(store.buffer, value, store.indices)

    again = tirx.IfThenElse(huge, stored(_call_libm), None)
    # unrolled: accumulators with a dynamic index could not stay in registers
    behind = copy_loop_nest(_with_body(loop, tirx.ForKind.UNROLLED, again))
    return tirx.stmt_seq(_with_body(loop, tirx.ForKind.VECTORIZED, stored(_expand_call)), behind)


def _with_body(loop: tirx.For, kind: int, body: tirx.Stmt) -> tirx.For:
    """Copy a loop with another kind and another statement as its, or its block's, body."""
    if isinstance(loop.body, SBlockRealize):
        realize, block = loop.body, loop.body.block
        inner = SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, body,
            alloc_buffers=block.alloc_buffers, match_buffers=block.match_buffers,
            annotations=block.annotations,
        )  # fmt: skip
        body = SBlockRealize(realize.iter_values, realize.predicate, inner)
    return tirx.For(loop.loop_var, loop.min, loop.extent, kind, body)


def _list_angles(store: BufferStore) -> list[Expr]:
    """List the arguments of trigonometric functions, if they are cheap to compute twice."""
    calls = find_nodes(store.value, Call)
    loads = list_loads(store.value)
    angles = [call.args[0] for call in calls if _is_circular(call)]
    reads_output = any(load.source.same_as(store.buffer) for load in loads)
    has_calls = any(find_nodes(angle, Call) for angle in angles)
    return [] if has_calls or reads_output else angles


def _is_circular(call: Call) -> bool:
    return getattr(call.op, "name", "") in _FUNCTIONS and str(call.ty) == SINGLE


def _expand_call(call: Call) -> Expr:
    if not _is_circular(call):
        return call
    compute = _FUNCTIONS[call.op.name]
    return build_let(call.args[0].astype(_DOUBLE), lambda x: _reduce_angle(x, compute)).astype(
        SINGLE
    )


def _call_libm(call: Call) -> Expr:
    """Call libm by name: LLVM would hoist its own intrinsic, which is pure, above the check."""
    if not _is_circular(call):
        return call
    return tirx.call_pure_extern(SINGLE, f"{call.op.name.removeprefix('tirx.')}f", call.args[0])


def _reduce_angle(x: Expr, body: Callable[[_Turn], Expr]) -> Expr:
    """Reduce an angle to quarter turns, and sine and cosine of the remainder, for `body`."""

    def of(quarters: Expr, rest: Expr) -> Expr:
        return build_let(
            rest * rest,
            lambda square: body(
                _Turn(
                    quarters,
                    rest * evaluate_polynomial(square, _SIN),
                    evaluate_polynomial(square, _COS),
                )
            ),
        )

    def parted(rounded_angle: Expr) -> Expr:
        quarters = tirx.reinterpret("int64", rounded_angle)
        return build_let(
            rounded_angle - _make_float64(_ROUND),
            lambda n: build_let(_subtract_quarters(x, n), partial(of, quarters)),
        )

    return build_let(x * _make_float64(2 / math.pi) + _make_float64(_ROUND), parted)


def _subtract_quarters(x: Expr, n: Expr) -> Expr:
    """Subtract n quarter turns from an angle."""
    for part in _PARTS:
        x = x - n * _make_float64(part)
    return x


def _compute_sin(turn: _Turn) -> Expr:
    value = tirx.Select(_is_odd(turn), turn.cosine, turn.sine)
    return _apply_quadrant_sign(turn.quarters, value)


def _compute_cos(turn: _Turn) -> Expr:
    value = tirx.Select(_is_odd(turn), turn.sine, turn.cosine)
    return _apply_quadrant_sign(turn.quarters + tirx.const(1, "int64"), value)


def _compute_tan(turn: _Turn) -> Expr:
    over = tirx.Select(_is_odd(turn), turn.cosine, turn.sine)
    return over / tirx.Select(_is_odd(turn), -turn.sine, turn.cosine)


def _is_odd(turn: _Turn) -> Expr:
    return (turn.quarters & 1) != 0


def _apply_quadrant_sign(quarters: Expr, value: Expr) -> Expr:
    """Negate a value for two or three quarter turns."""
    return build_let(value, lambda value: tirx.Select((quarters & 2) != 0, -value, value))


def _make_float64(value: float) -> Expr:
    return tirx.const(value, _DOUBLE)


_FUNCTIONS: Final = {"tirx.sin": _compute_sin, "tirx.cos": _compute_cos, "tirx.tan": _compute_tan}
"""By the name of the intrinsic."""

NAMES: Final = frozenset(_FUNCTIONS)
