"""Sigmoid and tanh of gates as little arithmetic, since they are a third of a step's time.

They round as `elementary` does, and differ from it at the ends: a sigmoid stays above 1e-38. A
sigmoid times a tanh takes one division in place of two, which take longest of all.
"""

from typing import Final

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr

from autopipe.compiler.graph import arithmetic, elementary, exponentials
from autopipe.compiler.graph.arithmetic import SINGLE, horner, let, single

_SIGMOID, _TANH = "tirx.sigmoid", "tirx.tanh"

_EXP: Final = (1.0, 1.0, *exponentials.EXP)

_EXP_END: Final = 87.0
"""Up to here e^x is neither infinite nor denormal, and 2^n is a number for its n."""

_FRACTION_BITS: Final = 23
_ONE_BITS: Final = 0x3F800000
"""The bits of 1 in single precision."""


def inline(value: Expr) -> Expr:
    """Return an expression with its elementary functions as arithmetic that fills whole vectors."""
    value = tvm_ffi.structural_map(value, (tirx.Mul, _product))
    return elementary.inline(tvm_ffi.structural_map(value, (Call, _single)))


def _product(product: tirx.Mul) -> Expr:
    """Return a sigmoid times a tanh as one fraction; any other product as it is."""
    sigmoid, tanh = _argument(product.a, _SIGMOID), _argument(product.b, _TANH)
    if sigmoid is None or tanh is None:
        return product
    under = let(sigmoid, _one_and_exp)
    return let(_bounded(tanh, elementary.TANH_END), lambda x: _over(x) / (_under(x) * under))


def _argument(value: Expr, name: str) -> Expr | None:
    """Return what a function is taken of, or None if the expression is none of its calls."""
    bound: Expr | None = None
    if isinstance(value, tirx.Let):
        bound, value = value.value, value.body
    if getattr(getattr(value, "op", None), "name", "") != name or str(value.ty) != SINGLE:
        return None
    return value.args[0] if bound is None else bound


def _single(call: Call) -> Expr:
    """Return a sigmoid or a tanh as arithmetic; any other call as it is."""
    sigmoid, tanh = _argument(call, _SIGMOID), _argument(call, _TANH)
    if sigmoid is not None:
        return single(1.0) / let(sigmoid, _one_and_exp)
    if tanh is not None:
        return let(_bounded(tanh, elementary.TANH_END), lambda x: _over(x) / _under(x))
    return call


def _over(x: Expr) -> Expr:
    return x * let(x * x, lambda square: horner(square, elementary.TANH[0]))


def _under(x: Expr) -> Expr:
    return let(x * x, lambda square: horner(square, elementary.TANH[1]))


def _one_and_exp(x: Expr) -> Expr:
    """1 + e^-x, where x is between the ends: 2^n * e^r, n as the last bits of a large number."""

    def scaled(shifted: Expr, y: Expr) -> Expr:
        n = shifted - single(arithmetic.ROUND)
        fraction = let(
            n, lambda n: y - n * single(exponentials.LN2[0]) - n * single(exponentials.LN2[1])
        )
        # the large number's own bits are gone when its last ones are the exponent
        power = (tirx.reinterpret("int32", shifted) << _FRACTION_BITS) + _ONE_BITS
        series = let(fraction, lambda r: horner(r, _EXP))
        return single(1.0) + series * tirx.reinterpret(SINGLE, power)

    def exp(y: Expr) -> Expr:
        shifted = y * single(1.4426950408889634) + single(arithmetic.ROUND)
        return let(shifted, lambda shifted: scaled(shifted, y))

    return let(_bounded(-x, _EXP_END), exp)


def _bounded(x: Expr, end: float) -> Expr:
    """Return a number between an end and its negative; what is no number stays that.

    A minimum or maximum is its second argument where one of the two is no number.
    """
    return tirx.max(single(-end), tirx.min(single(end), x))
