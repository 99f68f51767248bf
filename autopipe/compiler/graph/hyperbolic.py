"""Hyperbolic functions and their inverses as arithmetic, without tanh.

Where a function is nearly its argument, a polynomial of x^2 keeps all digits: differences of
exponentials and logarithms of numbers near 1 would lose them. The coefficients are minimax fits of
our own.
"""

import math
from collections.abc import Callable
from typing import Final

from tvm import tirx
from tvm.ir import Expr

from autopipe.compiler.graph.arithmetic import horner, let, no_number, odd, signed, single
from autopipe.compiler.graph.exponentials import exp, log

_SINH: Final = (
    0.1666666716337204, 0.008333349600434303, 0.0001983615948120132, 2.8169513370812638e-06,
)  # fmt: skip
"""(sinh(x) - x) / x^3 in x^2 for |x| <= 1, to 6e-11."""

_ASINH: Final = (
    -0.1666666567325592, 0.0749988928437233, -0.044613249599933624, 0.0300129521638155,
    -0.01997998170554638, 0.00916770938783884,
)  # fmt: skip
"""The same of asinh for |x| <= 1/2."""

_ATANH: Final = (
    0.3333333730697632, 0.19999727606773376, 0.14294853806495667, 0.10967181622982025,
    0.10282692313194275, 0.0245218425989151, 0.17594264447689056,
)  # fmt: skip
"""The same of atanh for |x| <= 1/2."""

_ACOSH: Final = (
    1.0, -0.08333317190408707, 0.018746070563793182, -0.005545453168451786, 0.0017552790232002735,
    -0.00040978859760798514,
)  # fmt: skip
"""acosh(1 + t) / sqrt(2t) for t <= 1/2, to 2e-9."""

_FAR: Final = 2.0**12
"""From here on 1 is lost beside x^2, whose square might be infinite."""


def sinh(x: Expr) -> Expr:
    """The hyperbolic sine, to 6 ulp: (e^|x| - e^-|x|) / 2, with the sign of x."""

    def of(half: Expr) -> Expr:
        far = signed(half - single(0.25) / half, x)
        return tirx.Select(tirx.abs(x) < single(1.0), odd(x, _SINH), far)

    return _half_exp(x, of)


def cosh(x: Expr) -> Expr:
    """The hyperbolic cosine, to 6 ulp: (e^|x| + e^-|x|) / 2."""
    return _half_exp(x, lambda half: half + single(0.25) / half)


def asinh(x: Expr) -> Expr:
    """The inverse of the sinh, to 3 ulp: ln(|x| + sqrt(x^2 + 1)), with the sign of x."""

    def of(size: Expr) -> Expr:
        far = signed(_log_of_sum(size, single(1.0)), x)
        return tirx.Select(size < single(0.5), odd(x, _ASINH), far)

    return let(tirx.abs(x), of)


def acosh(x: Expr) -> Expr:
    """The inverse of the cosh, to 3 ulp: ln(x + sqrt(x^2 - 1)). Below 1 it is no number."""

    def near_one(t: Expr) -> Expr:
        return tirx.sqrt(single(2.0) * t) * horner(t, _ACOSH)

    near = let(x - single(1.0), near_one)
    result = tirx.Select(x < single(1.5), near, _log_of_sum(x, single(-1.0)))
    return tirx.Select(x < single(1.0), no_number(), result)


def atanh(x: Expr) -> Expr:
    """The inverse of the tanh, to 3 ulp: ln((1 + x) / (1 - x)) / 2. Beyond 1 it is no number."""
    far = single(0.5) * let((single(1.0) + x) / (single(1.0) - x), log)
    return tirx.Select(tirx.abs(x) < single(0.5), odd(x, _ATANH), far)


def _half_exp(x: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """Bind e^|x| / 2, whose ends are beyond those of e^x: half of the square of e^(|x| / 2)."""
    root = let(tirx.abs(x) * single(0.5), exp)
    return let(root, lambda root: let(single(0.5) * root * root, body))


def _log_of_sum(x: Expr, one: Expr) -> Expr:
    """ln(x + sqrt(x^2 + one)), where x is not below 0."""
    far = x > single(_FAR)
    near = x + tirx.sqrt(x * x + one)
    rest = tirx.Select(far, single(math.log(2.0)), single(0.0))
    return let(tirx.Select(far, x, near), log) + rest
