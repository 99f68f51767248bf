"""Lower tanh and atanh to libm, which is more accurate than TVM's formulas.

TVM computes tanh(x) from e^-2x and atanh(x) from a logarithm of a number near 1, which cancels all
digits of an x close to 0. libm keeps them. Importing this module makes TVM's code generation for
processors call libm for scalars. Where `graph/elementary.py` expands these functions, no call is
left, and vectors of others are computed one by one.
"""

from collections.abc import Callable
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Call, Expr

FUNCTIONS: Final = frozenset({"tirx.tanh", "tirx.atanh"})
"""The functions that are lowered to libm."""
_BY_NAME: Final = "default.FLowerIntrinsic"
"""Attribute that lowers to a call of libm by name, as for functions without a formula."""
_FORMULAS: Final = ("llvm.FLowerIntrinsic", "llvm.FLegalize")
_LEVEL: Final = 99
"""Above that of TVM's own registration."""


def _make_lowering(name: str) -> Callable[[Call], Expr]:
    """Build the lowering of a function: to libm for scalars, to TVM's formula for vectors."""
    operator = tvm.ir.Op.get(name)
    formula = next(filter(None, map(operator.get_attr, _FORMULAS)))
    by_name = operator.get_attr(_BY_NAME)

    def lower(call: Call) -> Expr:
        replacement: Expr = (formula if "x" in str(call.ty) else by_name)(call)
        return replacement

    return lower


for _name in FUNCTIONS:
    tirx.register_intrin_lowering(_name, target="llvm", f=_make_lowering(_name), level=_LEVEL)
