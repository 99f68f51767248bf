"""Expand exponentials and logarithms to arithmetic.

The range reductions follow Cody and Waite, "Software Manual for the Elementary Functions" (1980).
The coefficients are our own minimax fits.
"""

import math
from typing import Final

from tvm import tirx
from tvm.ir import Call, Expr

from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.graph.arithmetic import (
    INFINITY_BITS,
    ROUND,
    SINGLE,
    build_let,
    evaluate_polynomial,
    make_float32,
    make_nan,
    take_magnitude_bits,
)  # fmt: skip

LN2: Final = (0.693359375, -2.1219444005469057e-4)
"""ln(2) in two parts: few bits, so that multiples are exact, and the rest."""

EXP: Final = (
    0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.008368716575205326,
    0.001381459878757596,
)  # fmt: skip
"""(e^r - 1 - r) / r^2 for |r| <= ln(2) / 2, to 3e-9."""

_EXP_RANGE: Final = (-87.5, 89.0)
"""At its ends e^x becomes denormal and infinite."""

_EXP_ZERO: Final = -104.0
"""Below it e^x is 0."""

_LIFT: Final = 40.0
"""Added to x where e^x is denormal, and compensated by a factor. The sum is exact."""

_LOG: Final = (
    0.3333333134651184, -0.2500081956386566, 0.20001226663589478, -0.16623356938362122,
    0.14201758801937103, -0.13160182535648346, 0.12761574983596802, -0.07634492963552475,
)  # fmt: skip
"""(ln(1 + z) - z + z^2 / 2) / z^3 for 1 + z between the roots of 1/2 and 2, to 6e-9."""

_BIAS: Final = 127
_FRACTION_BITS: Final = 23
_ROOT_HALF: Final = 0x3F3504F3
"""The bits of sqrt(1/2) in single precision."""
_DENORMAL: Final = 2.0**-126
"""The smallest normal float32."""
_UNMOVED: Final = 1e-30
"""From here on adding a denormal number does not change a number."""


def compute_exp_below(x: Expr) -> Expr:
    """Compute e^x to 1.5 ulp for x <= 0; a result below 2e-38 is 0."""
    return build_let(tirx.max(make_float32(_EXP_RANGE[0]), x), _compute_exp_in_range)


def _compute_exp_in_range(x: Expr) -> Expr:
    """Compute e^x in the normal range: 2^(n - 1) * 2e^r, n as the last bits of a large number.

    2^128, the factor of e^88.5, is not representable. Its half 2^127, for n = 128, is.
    """
    large = ROUND + _BIAS - 1

    def scaled(rounded_exponent: Expr) -> Expr:
        n = rounded_exponent - make_float32(large)
        fraction = build_let(n, lambda n: x - n * make_float32(LN2[0]) - n * make_float32(LN2[1]))
        series = build_let(
            fraction, lambda r: evaluate_polynomial(r, [2 * factor for factor in (1.0, 1.0, *EXP)])
        )
        # the shift drops the large number's own bits; its last ones become the exponent
        power = tirx.reinterpret("int32", rounded_exponent) << _FRACTION_BITS
        return series * tirx.reinterpret(SINGLE, power)

    return build_let(x * make_float32(1.4426950408889634) + make_float32(large), scaled)


def compute_exp(x: Expr) -> Expr:
    """Compute e^x to 1.5 ulp, including denormal results, for a logarithm of it."""
    low = make_float32(_EXP_RANGE[0])

    def of(y: Expr) -> Expr:
        near = build_let(tirx.Select(y < low, y + make_float32(_LIFT), y), _compute_exp_in_range)
        return near * tirx.Select(y < low, make_float32(math.exp(-_LIFT)), make_float32(1.0))

    # NaN passes through: a minimum and a maximum take their second operand then
    return build_let(
        tirx.max(make_float32(_EXP_ZERO), tirx.min(make_float32(_EXP_RANGE[1]), x)), of
    )


def compute_flushed_exp(x: Expr) -> Expr:
    """Compute e^x to 1.5 ulp; a result below 2e-38 is 0."""
    low, high = map(make_float32, _EXP_RANGE)
    return build_let(tirx.max(low, tirx.min(high, x)), _compute_exp_in_range)


def compute_log(x: Expr) -> Expr:
    """Compute ln(x) to 1 ulp."""
    denormal = x < make_float32(_DENORMAL)
    normal_x = tirx.Select(denormal, x * make_float32(2.0**_FRACTION_BITS), x)
    shift = tirx.Select(denormal, make_float32(-_FRACTION_BITS), make_float32(0.0))
    result = _compute_scaled_log(normal_x, shift)
    # infinity and NaN stay
    result = tirx.Select(take_magnitude_bits(x) >= INFINITY_BITS, x, result)
    result = tirx.Select(x == make_float32(0.0), -tirx.infinity(SINGLE), result)
    return tirx.Select(x < make_float32(0.0), make_nan(), result)


def expand_log_of_sum(call: Call) -> Expr:
    """Expand a call ln(c + e^x), such as a softplus, to 1 ulp; keep any other call.

    The sum is normal and positive, and does not change if a denormal e^x is flushed to 0.
    """
    total = call.args[0] if getattr(call.op, "name", "") == "tirx.log" else None
    if not isinstance(total, tirx.Add) or str(call.ty) != SINGLE:
        return call
    number, power = (total.a, total.b) if isinstance(total.a, tirx.FloatImm) else (total.b, total.a)
    plain = isinstance(number, tirx.FloatImm) and number.value >= _UNMOVED
    if not plain or getattr(getattr(power, "op", None), "name", "") != "tirx.exp":
        return call
    if find_nodes(power.args[0], Call):  # nested functions are bounded elsewhere
        return call

    def of(y: Expr) -> Expr:
        return tirx.Select(
            take_magnitude_bits(y) >= INFINITY_BITS, y, _compute_scaled_log(y, make_float32(0.0))
        )

    return build_let(number + build_let(power.args[0], compute_flushed_exp), of)


def _compute_scaled_log(x: Expr, shift: Expr) -> Expr:
    """Compute ln(x) + shift * ln(2) as n * ln(2) + ln(1 + z), with `shift` added to n.

    `x` is positive and normal.
    """

    def near_one(z: Expr, n: Expr) -> Expr:
        tail = z * z * (z * evaluate_polynomial(z, _LOG) - make_float32(0.5)) + n * make_float32(
            LN2[1]
        )
        return n * make_float32(LN2[0]) + (tail + z)

    def split(bits: Expr) -> Expr:
        offset = bits - _ROOT_HALF
        n = (offset >> _FRACTION_BITS).astype(SINGLE) + shift
        fraction = (offset & ((1 << _FRACTION_BITS) - 1)) + _ROOT_HALF
        z = tirx.reinterpret(SINGLE, fraction) - make_float32(1.0)
        return build_let(n, lambda n: build_let(z, lambda z: near_one(z, n)))

    return build_let(tirx.reinterpret("int32", x), split)
