"""Integer division that has a value for every pair of operands.

A processor traps where an integer is divided by 0, and where the smallest one is divided by -1, and
the process ends by SIGFPE. A package must not die of its inputs. As in NumPy, a quotient and a
remainder by 0 are 0, and an overflowing quotient is the dividend:

    x / select(w == 0 || w == -1, 1, w), but 0 where w == 0, and -x where w == -1

What guards the divisor hangs on nothing else: LLVM takes for granted that no operation overflowed
to make the dividend, and would leave out a guard that asks for the smallest integer.

Importing this module replaces what TVM legalizes four operators of Relax to; a division by a number
that is part of the code stays as it is.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tvm
from tvm import tirx, topi
from tvm.ir import GenericConst
from tvm.ir.prim import min_value
from tvm.relax.transform.legalize_ops import binary

from autopipe.compiler.element_rewrites import rewrite_elements

# ruff: noqa: ANN401, SLF001  TVM's expressions have no types, and its wrapper no public name

_DIVISIONS: Final = (tirx.Div, tirx.FloorDiv, tirx.Mod, tirx.FloorMod)
_QUOTIENTS: Final = (tirx.Div, tirx.FloorDiv)
_LEVEL: Final = 11
"""Above that of TVM's own registration, which is 10."""


def divide_safely(division: Any) -> Any:
    """Return an integer division by a computed divisor without a trap; any other as it is."""
    dividend, divisor = division.a, division.b
    dtype = str(divisor.ty.dtype)
    if not dtype.startswith(("int", "uint")) or isinstance(divisor, tirx.IntImm):
        return division
    zero, one = (tirx.const(value, dtype) for value in (0, 1))
    specials = {0: zero}
    if dtype.startswith("int"):
        specials[-1] = _negate(dividend, dtype)
    cases = {value: divisor.equal(tirx.const(value, dtype)) for value in specials}
    guarded = tirx.Select(tirx.any(*cases.values()), one, divisor)
    result = type(division)(dividend, guarded)
    if not isinstance(division, _QUOTIENTS):
        return result  # any integer modulo 1 is 0
    for value, quotient in specials.items():
        result = tirx.Select(cases[value], quotient, result)
    return result


def _negate(value: Any, dtype: str) -> Any:
    """Return an integer with the other sign; the smallest one, which has no other, as it is.

    LLVM takes no result of a subtraction for an overflow, and TVM's simplifier takes `value == MIN`
    of 32 bits for false, but leaves an exclusive or alone.
    """
    zero = tirx.const(0, dtype)
    is_least = tirx.bitwise_xor(value, min_value(dtype)).equal(zero)
    return tirx.Select(is_least, value, zero - value)


def _guarded(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of topi whose divisions are all safe."""
    return rewrite_elements(compute, _DIVISIONS, divide_safely)


def _legalized(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return what legalizes an operator by a function of topi."""
    usual, guarded = binary._binary(_guarded(compute)), _guarded(compute)

    def legalize(builder: Any, call: Any) -> Any:
        if _is_refused(call.args[1]):
            return builder.call_te(guarded, *call.args)  # it stays a tensor
        return usual(builder, call)

    return legalize


def _is_refused(divisor: Any) -> bool:
    """Tell whether TVM fails on an integer as the divisor in an expression."""
    if not isinstance(divisor, GenericConst):
        return False
    values = divisor.value.numpy()
    if values.dtype.kind not in "iu" or values.ndim:
        return False
    return values.item() in (0, np.iinfo(values.dtype).min)


for _compute in (topi.divide, topi.floor_divide, topi.mod, topi.floor_mod):
    tvm.ir.register_op_attr(f"relax.{_compute.__name__}", "FLegalize", _legalized(_compute), _LEVEL)
