"""Variadic operators: Max, Mean, Min, Sum."""

from typing import Any, Final

from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Converter,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: SLF001


def _apply_pairwise(converter: type[onnx_frontend.OnnxOpConverter]) -> Converter:
    """Return a converter that applies TVM's operator to two inputs at a time."""

    def convert(bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters) -> Expr:  # noqa: ARG001
        return converter._impl_dynamic(bb, list(inputs))

    converter_type: Any = type(
        converter.__name__, (converter,), {"_impl_v1": staticmethod(convert)}
    )
    return converter_type


_EXTREME: Final = (
    Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.SELECTS | Trait.EXACT_SPECIALS | Trait.COMPARES
)

OPERATORS: Final = (
    Operator(
        name="Max",
        since=13,
        converter=_apply_pairwise(onnx_frontend.Max),
        compute_sizes=arithmetic.take_maximum,
        traits=_EXTREME,
    ),
    Operator(
        name="Mean", since=13, converter=_apply_pairwise(onnx_frontend.Mean), traits=Trait.FOLDABLE
    ),
    Operator(
        name="Min",
        since=13,
        converter=_apply_pairwise(onnx_frontend.Min),
        compute_sizes=arithmetic.take_minimum,
        traits=_EXTREME,
    ),
    Operator(
        name="Sum",
        since=13,
        converter=_apply_pairwise(onnx_frontend.Sum),
        moments=rules.total,
        traits=Trait.FOLDABLE | Trait.ADDS | Trait.EXACT_SPECIALS,
    ),
)
