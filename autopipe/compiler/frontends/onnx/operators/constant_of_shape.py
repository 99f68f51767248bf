"""ConstantOfShape: a tensor filled with one value."""

from typing import Final

import numpy as np
from onnx.numpy_helper import to_array
from tvm import ir, relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import to_shape
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_constant_of_shape(site: NodeSite) -> Expr:
    """Convert ConstantOfShape; for rank 0 it is a constant, since TVM's operator needs a shape."""
    sizes = site.read_values(0)
    if sizes is None or sizes.size:
        return site.convert_by_tvm()
    value = to_array(site.attr["value"]) if "value" in site.attr else np.zeros(1, "float32")
    return operand_facts.make_constant(value.reshape(()))


def convert_dynamic_constant_of_shape(site: NodeSite) -> Expr | None:
    """Convert ConstantOfShape of dynamic sizes."""
    if site.numbers[0] is None or isinstance(site.inputs[0], ir.GenericConst):
        return None
    from onnx.numpy_helper import to_array

    value = to_array(site.attr["value"]).reshape(()) if "value" in site.attr else None
    number = relax.const(0.0, "float32") if value is None else operand_facts.make_constant(value)
    return relax.op.full(to_shape(site.numbers[0]), number, str(number.ty.dtype))


OPERATORS: Final = (
    Operator(
        name="ConstantOfShape",
        since=25,
        converter=convert_constant_of_shape,
        convert_dynamic=convert_dynamic_constant_of_shape,
        deciding=(0,),
        read_sizes=(0,),
        traits=Trait.FOLDABLE,
    ),
)
