"""Legalization of tensors filled with a constant, which may be an infinity or NaN.

TVM's function compares the name of the number's type with "float", and fails on a type of Relax.
Importing this module replaces TVM's legalization of two Relax ops: the number is passed as an
expression, and the type of an expression is not compared.
"""

from typing import Final

import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax.transform.legalize_ops import create

from autopipe.compiler.arithmetic.element_rewrites import Legalize

# ruff: noqa: SLF001  TVM's wrapper has no public name

_LEVEL: Final = 11
"""Above that of TVM's own registration, which is 10."""


def _make_legalizer(*, is_like: bool) -> Legalize:
    """Build the legalization of `full` or `full_like`."""
    default_legalize: Legalize = create._full(is_like, None, "full")

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        number = call.args[1]
        if not isinstance(number, GenericConst):
            return default_legalize(builder, call)
        value = tirx.const(number.value.numpy().item(), str(number.ty.dtype))
        legalize_constant: Legalize = create._full(is_like, value, "full")
        return legalize_constant(builder, call)

    return legalize


for _name, _is_like in (("full", False), ("full_like", True)):
    tvm.ir.register_op_attr(
        f"relax.{_name}", "FLegalize", _make_legalizer(is_like=_is_like), _LEVEL
    )
