"""Tensors that hold one number everywhere, which may be an infinity or NaN.

TVM's function for them asks of such a number whether its type is called "float", and fails on what
Relax has for a type. Importing this module replaces what TVM legalizes two operators of Relax to: a
number goes on as an expression, of which nothing is asked.
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
    """Return what legalizes `full`, or `full_like`."""
    usual: Legalize = create._full(is_like, None, "full")

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        number = call.args[1]
        if not isinstance(number, GenericConst):
            return usual(builder, call)
        value = tirx.const(number.value.numpy().item(), str(number.ty.dtype))
        filled: Legalize = create._full(is_like, value, "full")
        return filled(builder, call)

    return legalize


for _name, _is_like in (("full", False), ("full_like", True)):
    tvm.ir.register_op_attr(
        f"relax.{_name}", "FLegalize", _make_legalizer(is_like=_is_like), _LEVEL
    )
