"""Comparisons and logical operators."""

from typing import Final

from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Converter,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, SizeRule, Trait


class Equal(onnx_frontend.Equal):
    """Equal, bool included: TVM compares bool as floats, which LLVM rejects."""

    @classmethod
    def _impl_v13(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        is_constant = all(isinstance(value, GenericConst) for value in inputs)
        if is_constant or str(getattr(inputs[0].ty, "dtype", "")) != "bool":
            return super()._impl_v13(bb, inputs, attr, params)
        return relax.op.logical_not(bb.normalize(relax.op.logical_xor(*inputs)))


def _make_comparison(
    name: str, since: int, converter: Converter, compute_sizes: SizeRule
) -> Operator:
    return Operator(
        name=name, since=since, converter=converter, compute_sizes=compute_sizes,
        size_dtype=arithmetic.choose_bool_dtype, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    )  # fmt: skip


OPERATORS: Final = (
    _make_comparison("Equal", 19, Equal, arithmetic.is_equal),
    _make_comparison("Greater", 13, onnx_frontend.Greater, arithmetic.is_greater),
    _make_comparison(
        "GreaterOrEqual", 16, onnx_frontend.GreaterOrEqual, arithmetic.is_greater_or_equal
    ),
    _make_comparison("Less", 13, onnx_frontend.Less, arithmetic.is_less),
    _make_comparison("LessOrEqual", 16, onnx_frontend.LessOrEqual, arithmetic.is_less_or_equal),
    _make_comparison("And", 7, onnx_frontend.And, arithmetic.are_both),
    _make_comparison("Or", 7, onnx_frontend.Or, arithmetic.is_either),
    _make_comparison("Not", 1, onnx_frontend.Not, arithmetic.negate_truth),
    Operator(
        name="Xor",
        since=7,
        converter=onnx_frontend.Xor,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
)
