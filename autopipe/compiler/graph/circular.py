"""Sine, cosine and tangent as arithmetic, for arguments that are not huge, in vectors.

Multiples of pi / 2 are taken off in double precision, as Cody and Waite do it. Of arguments beyond
some million that leaves too few digits. A loop behind the vectors asks for these and computes them
by libm; in most models there are none. The coefficients are minimax fits of our own.

Example: the sines of 32 numbers.

    for i in vectorized(32):                 # before: 32 calls of libm
        out[i] = sin(x[i])

    for i in vectorized(32):                 # after
        out[i] = arithmetic of x[i]
    for i in unrolled(32):
        if not abs(x[i]) < 2^22:             # what is no number too
            out[i] = sin(x[i])

Angles that are made of indices, as those of a window are, have a bound that is known
(`angle_bounds.py`). They need no loop behind, and are arithmetic in any loop.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import BufferStore

from autopipe.compiler.graph.angle_bounds import make_magnitude_bound
from autopipe.compiler.graph.arithmetic import SINGLE, build_let, evaluate_polynomial
from autopipe.compiler.loops.copy_loops import copy_loop_nest

_DOUBLE: Final = "float64"

_MOST: Final = 2.0**22
"""Up to here a multiple of pi / 2 has so few bits that its products are exact."""

_PARTS: Final = (1.570796325802803, 9.920935774287987e-10, 2.2517417741562176e-18)
"""Pi / 2 in parts: the first two have 29 bits, so that multiples of them are exact."""

_ROUND: Final = 1.5 * 2.0**52
"""A double plus this one has no fraction left, and the number in its last bits."""

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
    """An angle: so many quarters, and the rest."""

    quarters: Expr
    """int64; its last two bits count."""
    sine: Expr
    """Of the rest."""
    cosine: Expr


def expand_circular(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function with arithmetic for the circular functions in its vectorized loops.

    Where an angle is known not to be huge, it may be in any loop.
    """
    if not has_circular_calls(function):
        return function
    bound = make_magnitude_bound(function)

    def small(call: Call) -> Expr:
        return _expand_call(call) if _is_circular(call) and bound(call.args[0]) < _MOST else call

    function = tvm_ffi.structural_map(function, (Call, small))
    return tvm_ffi.structural_map(function, (tirx.For, _split_huge_angles))


def has_circular_calls(function: tirx.PrimFunc) -> bool:
    """Tell whether a function holds any circular function, in whatever loop."""
    calls: list[Call] = []
    tvm_ffi.structural_walk(function.body, (Call, calls.append))
    return any(map(_is_circular, calls))


def _split_huge_angles(loop: tirx.For) -> tirx.Stmt:
    """Return a vectorized loop and one behind it for arguments that are huge."""
    block = loop.body.block if isinstance(loop.body, SBlockRealize) else None
    store = block.body if block is not None else loop.body
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(store, BufferStore):
        return loop
    arguments = _list_angles(store)
    if not arguments or (block is not None and block.init is not None):
        return loop
    huge = tirx.any(*(tirx.Not(tirx.abs(one) < tirx.const(_MOST, one.ty)) for one in arguments))

    def stored(by: Callable[[Call], Expr]) -> BufferStore:
        value = tvm_ffi.structural_map(store.value, (Call, by))
        return BufferStore(store.buffer, value, store.indices)

    again = tirx.IfThenElse(huge, stored(_call_libm), None)
    # written out: sums that a loop would look up by number could not stay in registers
    behind = copy_loop_nest(_with_body(loop, tirx.ForKind.UNROLLED, again))
    return tirx.stmt_seq(_with_body(loop, tirx.ForKind.VECTORIZED, stored(_expand_call)), behind)


def _with_body(loop: tirx.For, kind: int, body: tirx.Stmt) -> tirx.For:
    """Return a loop of some kind with some statement in the place of its own, or its block's."""
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
    """Return what circular functions are taken of, if that costs nothing to compute twice."""
    calls: list[Call] = []
    tvm_ffi.structural_walk(store.value, (Call, calls.append))
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(store.value, (TensorLoad, loads.append))
    found = [call.args[0] for call in calls if _is_circular(call)]
    inner: list[Call] = []
    for one in found:
        tvm_ffi.structural_walk(one, (Call, inner.append))
    changed = any(load.source.same_as(store.buffer) for load in loads)
    return [] if inner or changed else found


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
    """LLVM would call its own intrinsic, which changes nothing, before it asks for the argument."""
    if not _is_circular(call):
        return call
    return tirx.call_pure_extern(SINGLE, f"{call.op.name.removeprefix('tirx.')}f", call.args[0])


def _reduce_angle(x: Expr, body: Callable[[_Turn], Expr]) -> Expr:
    """Bind what functions of an angle are made of: quarters, and sine and cosine of the rest."""

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

    def parted(shifted: Expr) -> Expr:
        quarters = tirx.reinterpret("int64", shifted)
        return build_let(
            shifted - _make_float64(_ROUND),
            lambda n: build_let(_subtract_quarters(x, n), partial(of, quarters)),
        )

    return build_let(x * _make_float64(2 / math.pi) + _make_float64(_ROUND), parted)


def _subtract_quarters(x: Expr, n: Expr) -> Expr:
    """What is left of an angle without n quarters."""
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
    """Two or three quarters change the sign."""
    return build_let(value, lambda value: tirx.Select((quarters & 2) != 0, -value, value))


def _make_float64(value: float) -> Expr:
    return tirx.const(value, _DOUBLE)


_FUNCTIONS: Final = {"tirx.sin": _compute_sin, "tirx.cos": _compute_cos, "tirx.tan": _compute_tan}
"""By the name of the intrinsic."""

NAMES: Final = frozenset(_FUNCTIONS)
