"""Sigmoid and tanh of gates with minimum arithmetic, since they are a third of a step's time.

They round as `elementary` does. A sigmoid times a tanh takes one division instead of two, the most
expensive operations. A saturated gate is exactly 0, 1 or -1, as libm's: an int8 layer quantizes its
state by the minimum and maximum. Where these are -1 and 1, 0 is halfway between two quantization
steps, and an error of one ulp becomes one step, which the next gates multiply by their weights.
"""

from functools import partial
from typing import Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr

from autopipe.compiler.graph import arithmetic, elementary, exponentials
from autopipe.compiler.graph.arithmetic import SINGLE, build_let, evaluate_polynomial, make_float32

_SIGMOID, _TANH = "tirx.sigmoid", "tirx.tanh"

_EXP: Final = (1.0, 1.0, *exponentials.EXP)

_EXP_RANGE: Final = (-87.0, 88.8)
"""Where e^x is no denormal number; it is infinite at the upper end, as 2^n is for its n."""

_FRACTION_BITS: Final = 23
_ONE_BITS: Final = 0x3F800000
"""The bits of 1 in single precision."""


def inline_activations(value: Expr) -> Expr:
    """Expand the elementary functions of an expression to arithmetic that LLVM vectorizes."""
    value = tvm_ffi.structural_map(value, (tirx.Mul, _fuse_sigmoid_tanh))
    return elementary.expand_expression(tvm_ffi.structural_map(value, (Call, _expand_activation)))


def _fuse_sigmoid_tanh(product: tirx.Mul) -> Expr:
    """Rewrite a sigmoid times a tanh to one fraction; return any other product unchanged."""
    sigmoid, tanh = _find_argument(product.a, _SIGMOID), _find_argument(product.b, _TANH)
    if sigmoid is None or tanh is None:
        return product
    return _expand_tanh(tanh, build_let(sigmoid, _expand_one_plus_exp))


def _find_argument(value: Expr, name: str) -> Expr | None:
    """Return the argument of a call of a function, or None for another expression."""
    bound_value: Expr | None = None
    if isinstance(value, tirx.Let):
        bound_value, value = value.value, value.body
    if getattr(getattr(value, "op", None), "name", "") != name or str(value.ty) != SINGLE:
        return None
    return value.args[0] if bound_value is None else bound_value


def _expand_activation(call: Call) -> Expr:
    """Expand a sigmoid or a tanh to arithmetic; return any other call unchanged."""
    sigmoid, tanh = _find_argument(call, _SIGMOID), _find_argument(call, _TANH)
    if sigmoid is not None:
        return make_float32(1.0) / build_let(sigmoid, _expand_one_plus_exp)
    if tanh is not None:
        return _expand_tanh(tanh)
    return call


def _expand_tanh(x: Expr, divisor: Expr | None = None) -> Expr:
    """Expand tanh(x), divided by `divisor` if there is one, to one fraction."""

    def fraction(x: Expr, over: Expr, under: Expr) -> Expr:
        numerator = build_let(x * over, partial(_clamp_magnitude, under))
        return numerator / (under if divisor is None else under * divisor)

    def ratio(x: Expr) -> Expr:
        over, under = (
            build_let(x * x, partial(evaluate_polynomial, coefficients=factors))
            for factors in elementary.TANH
        )
        return build_let(under, lambda under: fraction(x, over, under))

    end = elementary.TANH_END
    return build_let(_clamp_to_range(x, -end, end), ratio)


def _expand_one_plus_exp(x: Expr) -> Expr:
    """Expand 1 + e^-x by e^-x = 2^n * e^r, with n in the low bits of a large number."""

    def scaled(rounding_sum: Expr, y: Expr) -> Expr:
        n = rounding_sum - make_float32(arithmetic.ROUND)
        fraction = build_let(
            n,
            lambda n: (
                y - n * make_float32(exponentials.LN2[0]) - n * make_float32(exponentials.LN2[1])
            ),
        )
        # the shift to the exponent drops the high bits of the large number
        power = (tirx.reinterpret("int32", rounding_sum) << _FRACTION_BITS) + _ONE_BITS
        series = build_let(fraction, lambda r: evaluate_polynomial(r, _EXP))
        return make_float32(1.0) + series * tirx.reinterpret(SINGLE, power)

    def exp(y: Expr) -> Expr:
        rounding_sum = y * make_float32(1.4426950408889634) + make_float32(arithmetic.ROUND)
        return build_let(rounding_sum, lambda shifted: scaled(shifted, y))

    low, high = _EXP_RANGE
    return build_let(_clamp_to_range(-x, low, high), exp)


def _clamp_to_range(x: Expr, low: float, high: float) -> Expr:
    """Clamp a number to a range; NaN stays NaN.

    A minimum or maximum is its second argument where one of the two is NaN.
    """
    return tirx.max(make_float32(low), tirx.min(make_float32(high), x))


def _clamp_magnitude(end: Expr, x: Expr) -> Expr:
    """Clamp a number to [-end, end]; NaN stays NaN."""
    return tirx.Select(x > end, end, tirx.Select(x < -end, -end, x))
