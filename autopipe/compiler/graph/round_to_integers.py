"""Round clamped floats to integers, as quantization does, in two instructions.

Adding 1.5 * 2^23 to a number rounds it to the nearest integer, ties to even, which is then in the
last bits. So no rounding and conversion is needed, and if only the last byte is stored, no
subtraction either.

Example: `cast(min(max(nearbyint(x), -3), 252), int32)` becomes, as 0x4B400000 are the bits of
1.5 * 2^23,

    reinterpret(min(max(x, -3), 252) + 1.5 * 2^23, int32) - 0x4B400000

The bounds are integers, so clamping before or after rounding gives the same result.
"""

from typing import Final

from tvm import tirx
from tvm.ir import Expr

from autopipe.compiler.graph.arithmetic import ROUND, ROUND_BITS, SINGLE, make_float32

_WHOLE: Final = "int32"
_FARTHEST: Final = 2.0**21
"""Bounds up to here keep the sum exact."""


def expand_rounding(cast: tirx.Cast) -> Expr:
    """Expand a cast of a rounded and clamped number to two instructions; keep any other."""
    if str(cast.ty) != _WHOLE:
        return cast
    match = _match_clamped_round(cast.value)
    if match is None:
        return cast
    x, low, high = match
    near = tirx.min(tirx.max(x, low), high) + make_float32(ROUND)
    return tirx.reinterpret(_WHOLE, near) - tirx.const(ROUND_BITS, _WHOLE)


def _match_clamped_round(value: Expr) -> tuple[Expr, Expr, Expr] | None:
    """Match `min(max(nearbyint(x), low), high)`; return x, low and high, or None."""
    if not isinstance(value, tirx.Min) or not isinstance(value.a, tirx.Max):
        return None
    nearest, low, high = value.a.a, value.a.b, value.b
    if not _is_whole(low) or not _is_whole(high):
        return None
    if getattr(getattr(nearest, "op", None), "name", "") != "tirx.nearbyint":
        return None
    return (nearest.args[0], low, high) if str(nearest.ty) == SINGLE else None


def _is_whole(bound: Expr) -> bool:
    if not isinstance(bound, tirx.FloatImm):
        return False
    return abs(bound.value) <= _FARTHEST and float(bound.value).is_integer()
