"""Maxima and minima of nothing but infinities.

TVM begins the search for a maximum with the lowest finite number, and pads pooling with it. So the
maximum of infinities below zero would be that number. Here the search begins with the infinity:

    most[i] = -3.4e38                       most[i] = -inf
    most[i] = max(most[i], x[i, k])         most[i] = max(most[i], x[i, k])

Importing this module replaces what TVM legalizes these operators of Relax to. Integers have no
infinities and stay.
"""

import math
from collections.abc import Callable
from typing import Final

import tvm
import tvm_ffi
from tvm import relax, tirx

from autopipe.compiler.arithmetic import reducers  # noqa: F401 - for the schedules of its results
from autopipe.compiler.arithmetic.element_rewrites import Legalize

_OPERATORS: Final = ("max", "min", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
_LEVEL: Final = 11
"""Above that of TVM's own registration, which is 10."""


def begin_with_infinity(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a search for maxima or minima with infinities in place of the last finite numbers."""

    def infinite(number: tirx.FloatImm) -> tirx.FloatImm:
        dtype = str(number.ty.dtype)
        if abs(number.value) != tirx.max_value(dtype).value:
            return number
        return tirx.FloatImm(dtype, math.copysign(math.inf, number.value))

    return tvm_ffi.structural_map(function, (tirx.FloatImm, infinite))


def _wrap_legalizer(usual: Callable[..., relax.Call]) -> Legalize:
    """Return what legalizes an operator, given what TVM does."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        apart = relax.BlockBuilder()
        made = usual(apart, call)
        if made.same_as(call):
            return call
        function, *rest = made.args
        changed = begin_with_infinity(apart.get()[function])
        variable = builder.add_func(changed, function.name_hint)
        return relax.Call(made.op, [variable, *rest], made.attrs, made.ty_args)

    return legalize


for _name in _OPERATORS:
    _usual = tvm.ir.Op.get(f"relax.{_name}").get_attr("FLegalize")
    tvm.ir.register_op_attr(f"relax.{_name}", "FLegalize", _wrap_legalizer(_usual), _LEVEL)
