"""Comparisons of two numbers."""

from typing import Final

from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


class Equal(onnx_frontend.Equal):
    """Equal of bool as well: TVM compares them as floats, which LLVM refuses."""

    @classmethod
    def _impl_v13(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        fixed = all(isinstance(value, GenericConst) for value in inputs)
        if fixed or str(getattr(inputs[0].ty, "dtype", "")) != "bool":
            return super()._impl_v13(bb, inputs, attr, params)
        return relax.op.logical_not(bb.normalize(relax.op.logical_xor(*inputs)))


OPERATORS: Final = (
    Operator(
        name="Equal",
        since=19,
        converter=Equal,
        compute_sizes=arithmetic.is_equal,
        size_dtype=arithmetic.truth_dtype,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Greater",
        since=13,
        converter=onnx_frontend.Greater,
        compute_sizes=arithmetic.is_greater,
        size_dtype=arithmetic.truth_dtype,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="GreaterOrEqual",
        since=16,
        converter=onnx_frontend.GreaterOrEqual,
        compute_sizes=arithmetic.is_greater_or_equal,
        size_dtype=arithmetic.truth_dtype,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Less",
        since=13,
        converter=onnx_frontend.Less,
        compute_sizes=arithmetic.is_less,
        size_dtype=arithmetic.truth_dtype,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="LessOrEqual",
        since=16,
        converter=onnx_frontend.LessOrEqual,
        compute_sizes=arithmetic.is_less_or_equal,
        size_dtype=arithmetic.truth_dtype,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
)
