"""ConstantOfShape: a tensor filled with one value."""

from typing import Final

import numpy as np
from onnx.numpy_helper import to_array
from tvm import ir, relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Parameters,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    to_shape,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ARG001  TVM's converters have one signature


class ConstantOfShape(onnx_frontend.ConstantOfShape):
    """ConstantOfShape; for rank 0 it is a constant, since TVM's operator needs a shape."""

    @classmethod
    def _impl_v9(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        sizes = operand_facts.read_values(inputs[0], params)
        if sizes is None or sizes.size:
            return super()._impl_v9(bb, inputs, attr, params)
        value = to_array(attr["value"]) if "value" in attr else np.zeros(1, "float32")
        return operand_facts.make_constant(value.reshape(()))


def convert_dynamic_constant_of_shape(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert ConstantOfShape of dynamic sizes."""
    if numbers[0] is None or isinstance(inputs[0], ir.GenericConst):
        return None
    from onnx.numpy_helper import to_array

    value = to_array(attr["value"]).reshape(()) if "value" in attr else None
    number = relax.const(0.0, "float32") if value is None else operand_facts.make_constant(value)
    return relax.op.full(to_shape(numbers[0]), number, str(number.ty.dtype))


OPERATORS: Final = (
    Operator(
        name="ConstantOfShape",
        since=25,
        converter=ConstantOfShape,
        convert_dynamic=convert_dynamic_constant_of_shape,
        deciding=(0,),
        read_sizes=(0,),
        traits=Trait.FOLDABLE,
    ),
)
