"""Converters of operators that read and write at computed indices.

An index out of range is undefined in ONNX and an error in onnxruntime. TVM's kernels would access
memory out of bounds. So computed indices are clipped to the tensor.
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
    bb: BlockBuilder, indices: Expr, extents: Sequence[Size], params: Parameters, label: str
) -> Expr:
    """Clip indices to an extent, or to one extent for each entry of their last axis.

    Negative indices count from the end, and stay. Raises `ModelError` for constants out of range.
    """
    static_extents = [extent for extent in extents if isinstance(extent, int)]
    if len(static_extents) < len(extents):
        return _limit_to_open_extents(bb, indices, extents)
    most = np.array(static_extents if len(static_extents) > 1 else static_extents[0])
    values = operand_facts.read_values(indices, params)
    if values is not None:
        if ((values < -most) | (values >= most)).any():
            raise ModelError(f"{label} has places outside of {list(extents)}")
        return indices
    dtype = str(indices.ty.dtype)
    first, last = (relax.const(bound, dtype) for bound in (-most, most - 1))
    return bb.normalize(relax.op.minimum(bb.normalize(relax.op.maximum(indices, first)), last))


def _limit_to_open_extents(bb: BlockBuilder, indices: Expr, extents: Sequence[Size]) -> Expr:
    """Clip indices to extents of which some are dynamic."""
    dtype = str(indices.ty.dtype)

    def clip(indices: te.Tensor, *extents: Expr) -> te.Tensor:
        def at(*index: Expr) -> Expr:
            extent = extents[0]
            for entry, next_extent in enumerate(extents[1:], 1):
                extent = tirx.if_then_else(index[-1] == entry, next_extent, extent)
            extent = tirx.Cast(dtype, extent)
            return tirx.max(tirx.min(indices[index], extent - 1), -extent)

        return te.compute(indices.shape, at, name="within")

    extent_arguments = (
        tirx.const(size, "int64") if isinstance(size, int) else size for size in extents
    )
    return bb.emit_te(clip, indices, *extent_arguments, primfunc_name_hint="within")


@dataclass(frozen=True)
class PlacesConverter:
    """A converter that clips indices to the tensor first."""

    name: str
    rule: PlaceRule
    converter: Converter
    cut: Callable[[BlockBuilder, Inputs, Sequence[Size], Attributes, Parameters], Inputs]

    def get_converter(self, opset: int) -> Convert:
        """Return the conversion function, as TVM's importer requests it."""

        def convert(bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters) -> Expr:
            shape = read_sizes(inputs[0])
            check_places(self.name, self.rule, inputs, attr)
            operands = inputs if shape is None else self.cut(bb, inputs, shape, attr, params)
            return self.converter.get_converter(opset)(bb, operands, attr, params)

        return convert


def limit_along_axis(
    bb: BlockBuilder, inputs: Inputs, shape: Sequence[Size], attr: Attributes, params: Parameters
) -> Inputs:
    """Clip the second input, indices along one axis, and return all inputs."""
    data, indices, *other_inputs = inputs
    if isinstance(indices.ty, relax.ShapeType):
        return inputs
    extent = shape[int(attr.get("axis", 0))]
    label = f"the second input of {operand_facts.quote_node_name(attr)}"
    clipped_indices = limit_to_extents(bb, indices, [extent], params, label)
    return onnx_frontend.onnx_input([data, clipped_indices, *other_inputs])


def limit_index_lists(
    bb: BlockBuilder, inputs: Inputs, shape: Sequence[Size], attr: Attributes, params: Parameters
) -> Inputs:
    """Clip the second input, index tuples over several axes, and return all inputs."""
    data, indices, *other_inputs = inputs
    label = f"the second input of {operand_facts.quote_node_name(attr)}"
    first, count = int(attr.get("batch_dims", 0)), operand_facts.read_extents(indices.ty, label)[-1]
    if count < 0:
        raise ModelError(f"{label} has a last axis of dynamic size")
    clipped_indices = limit_to_extents(bb, indices, shape[first : first + count], params, label)
    return onnx_frontend.onnx_input([data, clipped_indices, *other_inputs])


def read_sizes(operand: Expr) -> list[Size] | None:
    """Return the shape of a tensor, integers for static sizes; None if it is unknown."""
    dims = getattr(getattr(operand.ty, "shape", None), "values", None)
    if dims is None:
        return None
    return [int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in dims]
