"""Expand hyperbolic functions and their inverses, other than tanh, to arithmetic.

Where a function is nearly its argument, a polynomial of x^2 keeps all digits: differences of
exponentials and logarithms of numbers near 1 would lose them. The coefficients are our own minimax
fits.
"""

import math
from collections.abc import Callable
from typing import Final

from tvm import tirx
from tvm.ir import Expr

from autopipe.compiler.graph.arithmetic import (
    build_let,
    copy_sign,
    evaluate_odd_polynomial,
    evaluate_polynomial,
    make_float32,
    make_nan,
)
from autopipe.compiler.graph.exponentials import compute_exp, compute_log

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
"""From here on 1 is negligible beside x^2, and x^2 might overflow."""


def compute_sinh(x: Expr) -> Expr:
    """Compute sinh(x) to 6 ulp: (e^|x| - e^-|x|) / 2, with the sign of x."""

    def of(half: Expr) -> Expr:
        far = copy_sign(half - make_float32(0.25) / half, x)
        return tirx.Select(tirx.abs(x) < make_float32(1.0), evaluate_odd_polynomial(x, _SINH), far)

    return _bind_half_exp(x, of)


def compute_cosh(x: Expr) -> Expr:
    """Compute cosh(x) to 6 ulp: (e^|x| + e^-|x|) / 2."""
    return _bind_half_exp(x, lambda half: half + make_float32(0.25) / half)


def compute_asinh(x: Expr) -> Expr:
    """Compute asinh(x) to 3 ulp: ln(|x| + sqrt(x^2 + 1)), with the sign of x."""

    def of(size: Expr) -> Expr:
        far = copy_sign(_compute_log_of_sum(size, make_float32(1.0)), x)
        return tirx.Select(size < make_float32(0.5), evaluate_odd_polynomial(x, _ASINH), far)

    return build_let(tirx.abs(x), of)


def compute_acosh(x: Expr) -> Expr:
    """Compute acosh(x) to 3 ulp: ln(x + sqrt(x^2 - 1)). Below 1 it is NaN."""

    def near_one(t: Expr) -> Expr:
        return tirx.sqrt(make_float32(2.0) * t) * evaluate_polynomial(t, _ACOSH)

    near = build_let(x - make_float32(1.0), near_one)
    result = tirx.Select(x < make_float32(1.5), near, _compute_log_of_sum(x, make_float32(-1.0)))
    return tirx.Select(x < make_float32(1.0), make_nan(), result)


def compute_atanh(x: Expr) -> Expr:
    """Compute atanh(x) to 3 ulp: ln((1 + x) / (1 - x)) / 2. Beyond 1 it is NaN."""
    far = make_float32(0.5) * build_let(
        (make_float32(1.0) + x) / (make_float32(1.0) - x), compute_log
    )
    return tirx.Select(tirx.abs(x) < make_float32(0.5), evaluate_odd_polynomial(x, _ATANH), far)


def _bind_half_exp(x: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """Bind e^|x| / 2 as half of the square of e^(|x| / 2): it is finite where e^|x| overflows."""
    root = build_let(tirx.abs(x) * make_float32(0.5), compute_exp)
    return build_let(root, lambda root: build_let(make_float32(0.5) * root * root, body))


def _compute_log_of_sum(x: Expr, offset: Expr) -> Expr:
    """Compute ln(x + sqrt(x^2 + offset)), where x is not negative."""
    far = x > make_float32(_FAR)
    near = x + tirx.sqrt(x * x + offset)
    rest = tirx.Select(far, make_float32(math.log(2.0)), make_float32(0.0))
    return build_let(tirx.Select(far, x, near), compute_log) + rest
