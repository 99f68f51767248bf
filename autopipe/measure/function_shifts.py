"""Shift the results of elementary functions by some ulps, to measure the effect of rounding."""

from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr

ULPS: Final = 8.0
"""Largest error of elementary functions, here and in libm."""

_EPSILON: Final = {"float32": 2.0**-23, "float64": 2.0**-52}

_FUNCTIONS: Final = frozenset(
    f"tirx.{name}"
    for name in (
        "exp", "exp2", "log", "log2", "log1p", "pow", "sqrt", "rsqrt", "sigmoid", "tanh", "erf",
        "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh",
    )
)  # fmt: skip


def shift_functions(module: tvm.IRModule, ulps: float) -> tvm.IRModule:
    """Shift the result of each elementary function up by `ulps`, or down if negative.

    Upwards is away from zero for positive results and towards it for negative ones: this shifts
    the mean of a state that spans -1 to 1.
    """

    def shifted(call: Call) -> Expr:
        epsilon = _EPSILON.get(str(call.ty), 0.0)
        if getattr(call.op, "name", "") not in _FUNCTIONS or not epsilon:
            return call
        result = tirx.Var("result", call.ty)
        shift = tirx.abs(result) * tirx.const(ulps * epsilon, call.ty)
        return tirx.Let(result, call, result + shift)

    return tvm.IRModule(
        {name: tvm_ffi.structural_map(f, (Call, shifted)) for name, f in module.functions_items()}
    )
