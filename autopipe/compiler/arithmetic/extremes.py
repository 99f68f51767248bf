"""Identity elements of maxima and minima: infinities, not the extreme finite numbers.

TVM initializes a maximum with the lowest finite number, and pads pooling with it. So the maximum of
negative infinities would be that number. Here the reduction begins with the infinity:

    most[i] = -3.4e38                       most[i] = -inf
    most[i] = max(most[i], x[i, k])         most[i] = max(most[i], x[i, k])

Importing this module replaces TVM's legalization of these Relax ops. Integers have no
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
    """Replace the extreme finite numbers in a reduction by infinities."""

    def infinite(number: tirx.FloatImm) -> tirx.FloatImm:
        dtype = str(number.ty.dtype)
        if abs(number.value) != tirx.max_value(dtype).value:
            return number
        return tirx.FloatImm(dtype, math.copysign(math.inf, number.value))

    return tvm_ffi.structural_map(function, (tirx.FloatImm, infinite))


def _wrap_legalizer(default_legalize: Callable[..., relax.Call]) -> Legalize:
    """Wrap TVM's legalization of an op: begin reductions with infinity."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        scratch_builder = relax.BlockBuilder()
        loop_call = default_legalize(scratch_builder, call)
        if loop_call.same_as(call):
            return call
        function, *operands = loop_call.args
        rewritten_function = begin_with_infinity(scratch_builder.get()[function])
        variable = builder.add_func(rewritten_function, function.name_hint)
        return relax.Call(loop_call.op, [variable, *operands], loop_call.attrs, loop_call.ty_args)

    return legalize


for _name in _OPERATORS:
    _usual = tvm.ir.Op.get(f"relax.{_name}").get_attr("FLegalize")
    tvm.ir.register_op_attr(f"relax.{_name}", "FLegalize", _wrap_legalizer(_usual), _LEVEL)
