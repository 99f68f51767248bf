"""OneHot as ONNX defines it, of a constant or computed depth."""

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Expr, GenericConst
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
    as_int64,
    as_integer,
    as_scalar_array,
    is_open,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


class OneHot(onnx_frontend.OneHot):
    """OneHot in the dtype of its values, with a depth of rank 0 or 1."""

    @classmethod
    def _impl_v11(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        if not str(inputs[0].ty.dtype).startswith(("int", "uint")):
            places = bb.normalize(relax.op.astype(inputs[0], "int64"))
            inputs = onnx_frontend.onnx_input([places, *list(inputs)[1:]])
        # TVM's operator counts a negative axis from the end of the input, which has one axis less
        attr = {**attr, "axis": int(attr.get("axis", -1)) % (inputs[0].ty.ndim + 1)}
        depth = onnx_frontend.get_constant(inputs[1], params)
        if operand_facts.read_values(inputs[2], params) is None:
            return _select_computed_values(bb, inputs, attr, params)
        if isinstance(depth, GenericConst):  # possibly of shape [1]
            inputs = [inputs[0], relax.const(depth.value.numpy().item(), "int64"), inputs[2]]
        result = bb.normalize(super()._impl_v11(bb, inputs, attr, params))
        dtype = inputs[2].ty.dtype
        return result if result.ty.dtype == dtype else relax.op.astype(result, dtype)


def _select_computed_values(
    bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
) -> Expr:
    """Convert OneHot with computed off and on values."""
    label = f"OneHot {operand_facts.quote_node_name(attr)}"
    depth = int(operand_facts.require_values(inputs[1], params, f"the depth of {label}").item())
    row = operand_facts.make_constant(np.arange(depth, dtype="int64"))
    return compute_one_hot(bb, inputs, attr, relax.const(depth, "int64"), row)


def compute_one_hot(
    bb: BlockBuilder, inputs: Inputs, attr: Attributes, depth: Expr, row: Expr
) -> Expr:
    """Compute OneHot: the second value at the index along a new axis, the first value elsewhere.

    `depth` is an int64 scalar, and `row` holds 0 to depth - 1. A negative index counts from the
    end; an index out of range gives the first value everywhere.
    """
    places = bb.normalize(relax.op.astype(inputs[0], "int64"))
    negative = bb.normalize(relax.op.less(places, relax.const(0, "int64")))
    wrapped_places = bb.normalize(relax.op.add(places, depth))
    places = bb.normalize(relax.op.where(negative, wrapped_places, places))
    rank = places.ty.ndim + 1
    axis = int(attr.get("axis", -1)) % rank
    behind = list(range(1, rank - axis))
    row = bb.normalize(relax.op.expand_dims(row, behind)) if behind else row
    hot = relax.op.equal(bb.normalize(relax.op.expand_dims(places, axis)), row)
    off, on = (relax.op.take(inputs[2], relax.const(at, "int64"), 0) for at in range(2))
    return relax.op.where(bb.normalize(hot), bb.normalize(on), bb.normalize(off))


def convert_dynamic_one_hot(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert OneHot of a dynamic depth."""
    if numbers[1] is None or not is_open(numbers[1].reshape(-1)[:1]):
        return None
    depth = numbers[1].reshape(-1)[0]
    row = bb.emit(relax.op.arange(as_integer(0), as_int64(depth), as_integer(1), "int64"))
    number = extents.put(bb, as_scalar_array(depth), "int64")
    return compute_one_hot(bb, inputs, attr, number, row)


OPERATORS: Final = (
    Operator(
        name="OneHot",
        since=28,
        converter=OneHot,
        convert_dynamic=convert_dynamic_one_hot,
        steering=(1, 2),
        deciding=(1,),
        read_sizes=(1,),
        traits=Trait.FOLDABLE,
    ),
)
