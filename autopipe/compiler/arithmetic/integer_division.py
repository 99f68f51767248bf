"""Integer division that is defined for every pair of operands.

A processor traps where an integer is divided by 0, and where the smallest one is divided by -1, and
the process ends by SIGFPE. A package must not die of its inputs. As in NumPy, a quotient and a
remainder by 0 are 0, and an overflowing quotient is the dividend:

    x / select(w == 0 || w == -1, 1, w), but 0 where w == 0, and -x where w == -1

The guard depends on the divisor alone: LLVM assumes that no operation overflowed to compute the
dividend, and would remove a guard that compares it with the smallest integer.

Importing this module replaces TVM's legalization of four Relax ops; a division by a constant stays
as it is.
"""

from typing import Final, TypeAlias

import numpy as np
import tvm
from tvm import relax, tirx, topi
from tvm.ir import Expr, GenericConst
from tvm.ir.prim import min_value
from tvm.relax.transform.legalize_ops import binary

from autopipe.compiler.arithmetic.element_rewrites import Compute, Legalize, rewrite_elements

# ruff: noqa: SLF001  TVM's wrapper has no public name

_DIVISIONS: Final = (tirx.Div, tirx.FloorDiv, tirx.Mod, tirx.FloorMod)
_QUOTIENTS: Final = (tirx.Div, tirx.FloorDiv)
_LEVEL: Final = 11
"""Above that of TVM's own registration, which is 10."""


Division: TypeAlias = tirx.Div | tirx.FloorDiv | tirx.Mod | tirx.FloorMod


def divide_safely(division: Division) -> Expr:
    """Guard an integer division by a computed divisor against traps; keep any other."""
    dividend, divisor = division.a, division.b
    dtype = str(divisor.ty.dtype)
    if not dtype.startswith(("int", "uint")) or isinstance(divisor, tirx.IntImm):
        return division
    zero, unit = (tirx.const(value, dtype) for value in (0, 1))
    specials = {0: zero}
    if dtype.startswith("int"):
        specials[-1] = _negate_integer(dividend, dtype)
    cases = {value: divisor.equal(tirx.const(value, dtype)) for value in specials}
    safe_divisor = tirx.Select(tirx.any(*cases.values()), unit, divisor)
    result: Expr = type(division)(dividend, safe_divisor)
    if not isinstance(division, _QUOTIENTS):
        return result  # any integer modulo 1 is 0
    for value, quotient in specials.items():
        result = tirx.Select(cases[value], quotient, result)
    return result


def _negate_integer(value: Expr, dtype: str) -> Expr:
    """Negate an integer; the smallest one stays as it is.

    LLVM assumes that no subtraction overflows, and TVM's simplifier folds `value == MIN` of 32 bits
    to false, but keeps an exclusive or.
    """
    zero = tirx.const(0, dtype)
    is_least = tirx.bitwise_xor(value, min_value(dtype)).equal(zero)
    return tirx.Select(is_least, value, zero - value)


def _guard_divisions(compute: Compute) -> Compute:
    """Wrap a topi function: guard all of its divisions."""
    return rewrite_elements(compute, _DIVISIONS, divide_safely)


def _make_legalizer(compute: Compute) -> Legalize:
    """Build a legalization from a topi function, with guarded divisions."""
    default_legalize, guarded_compute = (
        binary._binary(_guard_divisions(compute)),
        _guard_divisions(compute),
    )

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if _is_refused(call.args[1]):
            return builder.call_te(guarded_compute, *call.args)  # it stays a tensor
        return default_legalize(builder, call)

    return legalize


def _is_refused(divisor: relax.Expr) -> bool:
    """Tell whether TVM fails on an integer as the divisor in an expression."""
    if not isinstance(divisor, GenericConst):
        return False
    values = divisor.value.numpy()
    if values.dtype.kind not in "iu" or values.ndim:
        return False
    return values.item() in (0, np.iinfo(values.dtype).min)


for _compute in (topi.divide, topi.floor_divide, topi.mod, topi.floor_mod):
    tvm.ir.register_op_attr(
        f"relax.{_compute.__name__}", "FLegalize", _make_legalizer(_compute), _LEVEL
    )
