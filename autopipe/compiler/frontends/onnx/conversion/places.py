"""Converters of operators that read and write at places which are computed.

ONNX leaves open what a place outside of a tensor means, and onnxruntime stops there. A kernel can
not: TVM's would read and write memory that is not its own. So computed places are cut to be inside.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Convert,
    Converter,
    Inputs,
    Parameters,
    Size,
)
from autopipe.compiler.frontends.onnx.conversion.place_limits import PlaceRule, check_places
from autopipe.errors import ModelError


def limit_to_extents(
    bb: BlockBuilder, indices: Expr, extents: Sequence[Size], params: Parameters, what: str
) -> Expr:
    """Return indices cut to an extent, or to one extent for each entry of their last axis.

    Negative ones count from the end, and stay. Raises `ModelError` for constants that are outside.
    """
    fixed = [extent for extent in extents if isinstance(extent, int)]
    if len(fixed) < len(extents):
        return _limit_to_open_extents(bb, indices, extents)
    most = np.array(fixed if len(fixed) > 1 else fixed[0])
    values = operand_facts.read_values(indices, params)
    if values is not None:
        if ((values < -most) | (values >= most)).any():
            raise ModelError(f"{what} has places outside of {list(extents)}")
        return indices
    dtype = str(indices.ty.dtype)
    first, last = (relax.const(bound, dtype) for bound in (-most, most - 1))
    return bb.normalize(relax.op.minimum(bb.normalize(relax.op.maximum(indices, first)), last))


def _limit_to_open_extents(bb: BlockBuilder, indices: Expr, extents: Sequence[Size]) -> Expr:
    """Return indices cut to extents of which some are open."""
    dtype = str(indices.ty.dtype)

    def cut(indices: te.Tensor, *extents: Expr) -> te.Tensor:
        def at(*index: Expr) -> Expr:
            extent = extents[0]
            for entry, other in enumerate(extents[1:], 1):
                extent = tirx.if_then_else(index[-1] == entry, other, extent)
            extent = tirx.Cast(dtype, extent)
            return tirx.max(tirx.min(indices[index], extent - 1), -extent)

        return te.compute(indices.shape, at, name="within")

    given = (tirx.const(size, "int64") if isinstance(size, int) else size for size in extents)
    return bb.emit_te(cut, indices, *given, primfunc_name_hint="within")


@dataclass(frozen=True)
class PlacesConverter:
    """A converter of TVM that gets places inside of the tensor only."""

    name: str
    rule: PlaceRule
    converter: Converter
    cut: Callable[[BlockBuilder, Inputs, Sequence[Size], Attributes, Parameters], Inputs]

    def get_converter(self, opset: int) -> Convert:
        """Return what converts a node, as TVM's importer calls it."""

        def convert(bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters) -> Expr:
            shape = read_sizes(inputs[0])
            check_places(self.name, self.rule, inputs, attr)
            given = inputs if shape is None else self.cut(bb, inputs, shape, attr, params)
            return self.converter.get_converter(opset)(bb, given, attr, params)

        return convert


def limit_along_axis(
    bb: BlockBuilder, inputs: Inputs, shape: Sequence[Size], attr: Attributes, params: Parameters
) -> Inputs:
    """Return the inputs of an operator whose second one holds places along one axis."""
    data, indices, *others = inputs
    if isinstance(indices.ty, relax.ShapeType):
        return inputs
    extent = shape[int(attr.get("axis", 0))]
    what = f"the second input of {operand_facts.quote_node_name(attr)}"
    cut = limit_to_extents(bb, indices, [extent], params, what)
    return onnx_frontend.onnx_input([data, cut, *others])


def limit_index_lists(
    bb: BlockBuilder, inputs: Inputs, shape: Sequence[Size], attr: Attributes, params: Parameters
) -> Inputs:
    """Return the inputs of an operator whose second one holds places along several axes."""
    data, indices, *others = inputs
    what = f"the second input of {operand_facts.quote_node_name(attr)}"
    first, count = int(attr.get("batch_dims", 0)), operand_facts.read_extents(indices.ty, what)[-1]
    if count < 0:
        raise ModelError(f"{what} has a last axis whose size is open")
    cut = limit_to_extents(bb, indices, shape[first : first + count], params, what)
    return onnx_frontend.onnx_input([data, cut, *others])


def read_sizes(operand: Expr) -> list[Size] | None:
    """Return the shape of a tensor, numbers where it is fixed; None where it is not known."""
    dims = getattr(getattr(operand.ty, "shape", None), "values", None)
    if dims is None:
        return None
    return [int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in dims]
