"""Expand arcsine, arccosine and arctangent to arithmetic.

Range reduction as in S. L. Moshier, "Methods and Programs for Mathematical Functions" (1989): an
argument is reduced to near 0, for a polynomial of x^2. The coefficients are our own minimax fits.
"""

import math
from typing import Final

from tvm import tirx
from tvm.ir import Expr

from autopipe.compiler.graph.arithmetic import (
    build_let,
    copy_sign,
    evaluate_odd_polynomial,
    evaluate_polynomial,
    make_float32,
)

_ASIN: Final = (
    0.16666659712791443, 0.07500503957271576, 0.04451695457100868, 0.03180772438645363,
    0.014438574202358723, 0.03751649335026741,
)  # fmt: skip
"""(asin(x) - x) / x^3 in x^2 for |x| <= 1/2, to 3e-10."""

_ATAN: Final = (
    -0.33333316445350647, 0.19998471438884735, -0.14243532717227936, 0.1059381291270256,
    -0.06078220158815384,
)  # fmt: skip
"""The same of atan for |x| <= tan(pi / 8), to 7e-10."""

_EIGHTH: Final = math.tan(math.pi / 8)
_THREE_EIGHTHS: Final = math.tan(3 * math.pi / 8)


def compute_asin(x: Expr) -> Expr:
    """Compute asin(x) to 3 ulp.

    Beyond 1/2 it is pi / 2 - 2 asin(sqrt((1 - |x|) / 2)), with the sign of x.
    """

    def of(size: Expr) -> Expr:
        far = copy_sign(make_float32(math.pi / 2) - _compute_far_acos(size), x)
        return tirx.Select(size < make_float32(0.5), evaluate_odd_polynomial(x, _ASIN), far)

    return build_let(tirx.abs(x), of)


def compute_acos(x: Expr) -> Expr:
    """Compute acos(x) to 3 ulp.

    It is pi / 2 - asin(x), and 2 asin(sqrt((1 - x) / 2)) beyond 1/2.
    """

    def of(size: Expr) -> Expr:
        near = make_float32(math.pi / 2) - evaluate_odd_polynomial(x, _ASIN)
        far = build_let(
            _compute_far_acos(size),
            lambda a: tirx.Select(x < make_float32(0.0), make_float32(math.pi) - a, a),
        )
        return tirx.Select(size < make_float32(0.5), near, far)

    return build_let(tirx.abs(x), of)


def compute_atan(x: Expr) -> Expr:
    """Compute atan(x) to 3 ulp.

    Far from 0 it is that of 1 / x, or of (x - 1) / (x + 1), beside pi / 2 or pi / 4.
    """

    def of(size: Expr) -> Expr:
        far, middle = size > make_float32(_THREE_EIGHTHS), size > make_float32(_EIGHTH)
        unit = make_float32(1.0)
        over = tirx.Select(far, -unit, tirx.Select(middle, size - unit, size))
        under = tirx.Select(far, size, tirx.Select(middle, size + unit, unit))
        quarter = tirx.Select(middle, make_float32(math.pi / 4), make_float32(0.0))
        base = tirx.Select(far, make_float32(math.pi / 2), quarter)
        result = base + build_let(over / under, lambda z: evaluate_odd_polynomial(z, _ATAN))
        return tirx.Select(x == make_float32(0.0), x, copy_sign(result, x))

    return build_let(tirx.abs(x), of)


def _compute_far_acos(size: Expr) -> Expr:
    """Compute acos(size) for a size from 1/2 to 1: 2 asin(s), where s^2 is (1 - size) / 2."""

    def of(square: Expr) -> Expr:
        root = make_float32(2.0) * tirx.sqrt(square)
        return root + root * square * evaluate_polynomial(square, _ASIN)

    return build_let((make_float32(1.0) - size) * make_float32(0.5), of)
