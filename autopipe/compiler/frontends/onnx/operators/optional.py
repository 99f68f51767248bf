"""Optional values."""

from typing import Final

import numpy as np
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.operator import Operator


class OptionalHasElement(onnx_frontend.OptionalHasElement):
    """OptionalHasElement, also of an absent input."""

    @classmethod
    def _impl_v15(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        if not any(value is not None for value in inputs):
            return operand_facts.make_constant(np.zeros((), "bool"))
        return super()._impl_v15(bb, inputs, attr, params)

    _impl_v18 = _impl_v28 = _impl_v15


OPERATORS: Final = (
    Operator(name="Optional", since=28, converter=onnx_frontend.Optional_),
    Operator(name="OptionalGetElement", since=28, converter=onnx_frontend.OptionalGetElement),
    Operator(name="OptionalHasElement", since=28, converter=OptionalHasElement),
)
