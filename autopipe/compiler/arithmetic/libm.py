"""Functions of libm in the place of what TVM writes with fewer digits.

TVM makes tanh(x) of e^-2x and atanh(x) of a logarithm of a number near 1, which leave nothing of an
x close to 0. libm keeps all digits. Importing this module has TVM's code generation for processors
call it, for single numbers. Where `graph/elementary.py` makes arithmetic of these functions, no
call is left, and it has vectors of others computed one by one.
"""

from collections.abc import Callable
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Call, Expr

FUNCTIONS: Final = frozenset({"tirx.tanh", "tirx.atanh"})
"""The functions."""
_BY_NAME: Final = "default.FLowerIntrinsic"
"""What makes a call of libm by its name, as for functions that TVM has no formula of."""
_FORMULAS: Final = ("llvm.FLowerIntrinsic", "llvm.FLegalize")
_LEVEL: Final = 99
"""Above that of TVM's own registration."""


def _make_lowering(name: str) -> Callable[[Call], Expr]:
    """Return what a call becomes in code: one of libm, or for vectors what TVM has."""
    operator = tvm.ir.Op.get(name)
    formula = next(filter(None, map(operator.get_attr, _FORMULAS)))
    by_name = operator.get_attr(_BY_NAME)

    def lower(call: Call) -> Expr:
        lowered: Expr = (formula if "x" in str(call.ty) else by_name)(call)
        return lowered

    return lower


for _name in FUNCTIONS:
    tirx.register_intrin_lowering(_name, target="llvm", f=_make_lowering(_name), level=_LEVEL)
