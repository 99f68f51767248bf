"""Floats rounded to whole numbers within bounds, as quantization ends, in two instructions.

A number plus 1.5 * 2^23 has no fraction left, and the nearest whole number in its last bits, the
even one of two. So nothing has to be rounded first and converted afterwards; and who keeps the last
byte alone needs no subtraction either.

Example: `cast(min(max(nearbyint(x), -3), 252), int32)` becomes, as 0x4B400000 are the bits of
1.5 * 2^23,

    reinterpret(min(max(x, -3), 252) + 1.5 * 2^23, int32) - 0x4B400000

The bounds are whole, so it does not matter whether they are applied before rounding or after it.
"""

from typing import Final

from tvm import tirx
from tvm.ir import Expr

from autopipe.compiler.graph.arithmetic import ROUND, ROUND_BITS, SINGLE, make_float32

_WHOLE: Final = "int32"
_FARTHEST: Final = 2.0**21
"""Bounds up to here leave numbers exact."""


def expand_rounding(cast: tirx.Cast) -> Expr:
    """Return a cast of a rounded number within whole bounds as two instructions; others as is."""
    if str(cast.ty) != _WHOLE:
        return cast
    bounded = _match_clamped_round(cast.value)
    if bounded is None:
        return cast
    x, low, high = bounded
    near = tirx.min(tirx.max(x, low), high) + make_float32(ROUND)
    return tirx.reinterpret(_WHOLE, near) - tirx.const(ROUND_BITS, _WHOLE)


def _match_clamped_round(value: Expr) -> tuple[Expr, Expr, Expr] | None:
    """Return x, low and high of `min(max(nearbyint(x), low), high)`."""
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
