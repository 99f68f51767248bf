"""Dropout in inference mode: the identity."""

from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.operator import Operator
from autopipe.errors import ModelError


class Dropout(onnx_frontend.Dropout):
    """Dropout in inference mode."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        if attr["tvm_custom"]["num_outputs"] == 1:
            return super()._impl_v1(bb, inputs, attr, params)
        return _add_full_mask(bb, inputs[0])

    @classmethod
    def _impl_v12(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        ratio, training = find_optional_input(inputs, 1), find_optional_input(inputs, 2)
        if not (_is_number(training, 0, params) or _is_number(ratio, 0, params)):
            raise ModelError("Dropout with training_mode is not supported")
        if attr["tvm_custom"]["num_outputs"] == 1:
            return super()._impl_v12(bb, inputs, attr, params)
        return _add_full_mask(bb, inputs[0])


def _is_number(value: Expr | None, number: int, params: Parameters) -> bool:
    """Whether an input is a constant of this value; an absent input counts as 0."""
    if value is None:
        return number == 0
    values = operand_facts.read_values(value, params)
    return values is not None and values.item() == number


def _add_full_mask(bb: BlockBuilder, data: Expr) -> Expr:
    return relax.Tuple([data, bb.normalize(relax.op.ones(data.ty.shape, "bool"))])


OPERATORS: Final = (Operator(name="Dropout", since=22, converter=Dropout),)
