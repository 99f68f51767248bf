"""NonZero: the indices of nonzero elements."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from tvm import ir, relax, te, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Parameters,
)
from autopipe.compiler.frontends.onnx.conversion.operand_facts import (
    read_node_name,
    require_constant,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.nonzero_places import (
    find_nonzero_places,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ARG001, ARG003  TVM's converters have one signature


class NonZero(onnx_frontend.OnnxOpConverter):
    """NonZero of a constant."""

    @classmethod
    def _impl_v9(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data = require_constant("NonZero", inputs[0], attr, params)
        places = np.stack(np.nonzero(np.atleast_1d(data)))
        return relax.const(places.astype("int64"), "int64")


def convert_dynamic_non_zero(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert NonZero of computed data: [rank, count] int64, one column for each element."""
    data = inputs[0]
    if isinstance(data, ir.GenericConst):
        return None
    sizes = extents.shape(data, describe_node("NonZero", attr)) or [1]
    places = find_nonzero_places(extents, bb, data, sizes, read_node_name(attr))
    if len(sizes) == 1:
        return relax.op.reshape(places, to_shape([1, *extents.shape(places, "places")]))

    def compute(places: te.Tensor, *sizes: Sequence[Expr]) -> te.Tensor:
        def at(axis: Expr, place: Expr) -> Expr:
            value, remainder = as_int64(0), places[place]
            for number in reversed(range(len(sizes))):
                value = tirx.if_then_else(
                    axis == number, tirx.floormod(remainder, sizes[number]), value
                )
                remainder = tirx.floordiv(remainder, sizes[number])
            return value

        return te.compute([as_int64(len(sizes)), places.shape[0]], at, name="unravelled")

    return bb.emit_te(compute, places, *map(as_int64, sizes), primfunc_name_hint="unravelled")


OPERATORS: Final = (
    Operator(
        name="NonZero",
        since=13,
        converter=NonZero,
        convert_dynamic=convert_dynamic_non_zero,
        deciding=(0,),
        traits=Trait.FOLDABLE | Trait.CHOOSES_ROWS,
    ),
)
