"""Types of values: element type, and each size as a number, a name, or None."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import onnx
from onnx import GraphProto, ModelProto, TypeProto, helper

from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.compiler.frontends.onnx.reading.tensors import list_graphs
from autopipe.errors import ModelError

_SHORT: Final = 1024
"""Maximum bytes of tensors with values for inference; of larger ones it gets only the type."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """The inferred type of a value."""

    element: int
    """ONNX's element type, 0 if unknown."""
    sizes: tuple[int | str | None, ...] | None
    """A number or a name for each size, None for one that is unknown; None for an unknown rank."""

    @property
    def rank(self) -> int | None:
        """The number of axes, None if unknown."""
        return None if self.sizes is None else len(self.sizes)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The sizes, None if one is not a number."""
        if self.sizes is None:
            return None
        numbers = tuple(size for size in self.sizes if isinstance(size, int))
        return numbers if len(numbers) == len(self.sizes) else None


UNKNOWN: Final = ValueType(0, None)


def note_types(model: ModelProto) -> None:
    """Replace the types of values and outputs, inner graphs included, by the inferred ones.

    Inference sees weights by shape only, so that none is copied.
    """
    try:
        inferred_model = infer_types(_strip_large_tensors(model))
    except onnx.shape_inference.InferenceError as error:
        raise ModelError(f"shapes cannot be inferred: {error}") from error
    for graph, inferred_graph in zip(
        list_graphs(model.graph), list_graphs(inferred_model.graph), strict=True
    ):
        del graph.value_info[:]
        graph.value_info.extend(inferred_graph.value_info)
        for output, inferred_output in zip(graph.output, inferred_graph.output, strict=True):
            output.type.CopyFrom(inferred_output.type)


def read_types(graph: GraphProto) -> dict[str, ValueType]:
    """Return the noted types of a graph by name, without inner graphs."""
    types = {
        value.name: _parse_type(value.type.SerializeToString())
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    types.update(
        (each.name, ValueType(each.data_type, tuple(each.dims))) for each in graph.initializer
    )
    return types


@lru_cache(1 << 12)
def _parse_type(data: bytes) -> ValueType:
    """Parse a serialized type, of which a graph has few."""
    kind = TypeProto.FromString(data)
    tensor = kind.tensor_type
    if not kind.HasField("tensor_type"):
        return UNKNOWN
    if not tensor.HasField("shape"):
        return ValueType(tensor.elem_type, None)
    sizes = (
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in tensor.shape.dim
    )
    return ValueType(tensor.elem_type, tuple(sizes))


def _strip_large_tensors(model: ModelProto) -> ModelProto:
    """Copy a model with large tensors replaced by inputs of their types."""
    graph = model.graph
    large = [tensor for tensor in graph.initializer if tensor.ByteSize() > _SHORT]
    return helper.make_model(
        helper.make_graph(
            graph.node,
            graph.name or "model",
            [
                *graph.input,
                *(
                    helper.make_tensor_value_info(each.name, each.data_type, each.dims)
                    for each in large
                ),
            ],
            graph.output,
            [tensor for tensor in graph.initializer if tensor.ByteSize() <= _SHORT],
            value_info=graph.value_info,
        ),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
    )
