"""Div and Mod of floats and integers."""

from typing import Final

from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


class Div(onnx_frontend.Div):
    """Integer Div with division by 0 defined as in `compiler/arithmetic/integer_division.py`."""

    @classmethod
    def _impl_v7(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        if _is_integer_constant(inputs[1]) and not inputs[1].value.numpy().all():
            return relax.op.divide(*inputs)
        return super()._impl_v7(bb, inputs, attr, params)


class Mod(onnx_frontend.Mod):
    """Mod with the sign of the divisor, or with that of the dividend."""

    @classmethod
    def _impl_v10(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        if _is_integer_constant(inputs[1]) and not inputs[1].value.numpy().all():
            divide = relax.op.mod if attr.get("fmod", 0) else relax.op.floor_mod
            return divide(*inputs)
        if str(inputs[0].ty.dtype).startswith("float") and not attr.get("fmod", 0):
            remainder = bb.normalize(relax.op.mod(*inputs))
            zero = relax.const(0, inputs[0].ty.dtype)
            signs = [relax.op.less(value, zero) for value in (remainder, inputs[1])]
            signs_differ = relax.op.logical_xor(*signs)
            signs_differ = relax.op.logical_and(signs_differ, relax.op.not_equal(remainder, zero))
            return relax.op.where(signs_differ, relax.op.add(remainder, inputs[1]), remainder)
        return super()._impl_v10(bb, inputs, attr, params)


def _is_integer_constant(value: Expr) -> bool:
    return isinstance(value, GenericConst) and value.value.numpy().dtype.kind in "iu"


OPERATORS: Final = (
    Operator(
        name="Div",
        since=14,
        converter=Div,
        compute_sizes=arithmetic.divide_numbers,
        moments=rules.quotient,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Mod",
        since=28,
        converter=Mod,
        compute_sizes=arithmetic.take_remainder,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
)
