"""Bind input shapes to the pipeline's, and infer and check the other shapes."""

import math
import re
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, TensorShapeProto, ValueInfoProto, numpy_helper

from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.reading.inference import infer_strictly
from autopipe.compiler.frontends.onnx.reading.tensors import (
    DTYPES,
    count_elements,
    describe_node,
    list_graphs,
    name_nodes,
    to_dtype_name,
)
from autopipe.compiler.frontends.onnx.reading.value_types import read_type, read_value_types
from autopipe.config.model import Input
from autopipe.config.suggestion import find_closest
from autopipe.errors import ConfigError, ModelError

_LONGEST = 500
_MOST_FIXED = 1024
"""Maximum number of elements of an input with a configured value."""
_RESULT_TYPES = frozenset({0, TensorProto.BFLOAT16})
"""Element types of results besides those of TVM; 0 is an unknown one."""
_CAST_TYPES = _RESULT_TYPES | {TensorProto.INT4, TensorProto.UINT4}
_ITEM_BYTES = {kind: np.dtype(name).itemsize for kind, (name, _) in DTYPES.items()}
_ERRORS = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)
_CONTEXT = re.compile(
    r"^(.*) ==> Context: Bad node spec for node\. Name: (.*) OpType: (\w+)( ==> Context.*)?$"
)
_TAGS = re.compile(r"\[\w+Error\] |Inference error\(s\): ")


def bind_inputs(graph: GraphProto, inputs: Mapping[str, Input]) -> tuple[Value, ...]:
    """Bind the inputs of a graph to the shapes of the pipeline.

    A dimension that the pipeline names is dynamic under that name. A symbol bound for one input is
    bound for all. Raises `ConfigError` if the pipeline contradicts the model, `ModelError` if a
    dimension stays unbound.
    """
    names = [value.name for value in graph.input]
    for name in inputs.keys() - set(names):
        suggestion = find_closest(name, names)
        hint = f"; did you mean {suggestion!r}?" if suggestion else ";"
        raise ConfigError(
            f"model.inputs.{name}: the model has no such input{hint} it has {_quote_names(names)}"
        )
    symbols: dict[str, int | str] = {}
    for value in graph.input:
        if value.name in inputs:
            _give_shape(value, inputs[value.name], symbols)
    return tuple(_bind_input(value, inputs.get(value.name), symbols) for value in graph.input)


def fix_inputs(graph: GraphProto, inputs: Mapping[str, Input]) -> dict[str, Input]:
    """Convert inputs with a configured value to initializers; returns the other inputs.

    Raises `ConfigError` for a value that the input's dtype cannot represent or a wrong shape.
    """
    for index, value in reversed(list(enumerate(graph.input))):
        input_spec = inputs.get(value.name)
        if input_spec is None or input_spec.value is None:
            continue
        _give_shape(value, input_spec, {})
        shape = input_spec.sizes
        if math.prod(shape) > _MOST_FIXED:
            raise ConfigError(
                f"model.inputs.{value.name}.value: an input of {list(shape)} is no number"
            )
        dtype, field_path = _read_dtype(value), f"model.inputs.{value.name}.value"
        array = np.full(shape, input_spec.value).astype(dtype)
        if not np.array_equal(array, np.full(shape, input_spec.value)) and array.dtype.kind != "f":
            raise ConfigError(f"{field_path}: {input_spec.value} is no {dtype}")
        graph.initializer.append(numpy_helper.from_array(array, value.name))
        del graph.input[index]
    return {name: given for name, given in inputs.items() if given.value is None}


def list_unbound_inputs(graph: GraphProto) -> tuple[Value, ...]:
    """Return the inputs of a graph with dynamic dimensions replaced by 1."""
    dtypes = {value.name: _read_dtype(_require_rank(value)) for value in graph.input}
    return tuple(
        Value(
            name=name,
            shape=tuple(s if isinstance(s, int) else 1 for s in sizes),
            dtype=dtypes[name],
        )
        for name, sizes in read_declared_shapes(graph).items()
    )


def read_declared_shapes(graph: GraphProto) -> dict[str, tuple[int | str | None, ...]]:
    """Return the declared shape of each input: sizes, symbols, None for an unnamed dimension."""
    types = read_value_types(graph.input)
    return {name: kind.sizes for name, kind in types.items() if kind.sizes is not None}


def _give_shape(value: ValueInfoProto, input_spec: Input, symbols: dict[str, int | str]) -> None:
    field_path = f"model.inputs.{value.name}"
    kind = value.type.tensor_type
    dtype = _read_dtype(value)
    if input_spec.dtype not in (None, dtype):
        raise ConfigError(f"{field_path}.dtype: {input_spec.dtype} is given, the model has {dtype}")
    if not kind.HasField("shape"):
        for _ in input_spec.shape:
            kind.shape.dim.add()
    if len(input_spec.shape) != len(kind.shape.dim):
        raise ConfigError(
            f"{field_path}.shape: {list(input_spec.shape)} has {len(input_spec.shape)} dimensions, "
            f"the model has {len(kind.shape.dim)}"
        )
    for axis, (dim, size) in enumerate(zip(kind.shape.dim, input_spec.shape, strict=True)):
        known_size = dim.dim_value if dim.HasField("dim_value") else symbols.get(dim.dim_param)
        if known_size is not None and known_size != size:
            raise ConfigError(
                f"{field_path}.shape: dimension {axis} is {size}, the model has "
                f"{dim.dim_param or known_size}{f' = {known_size}' if dim.dim_param else ''} there"
            )
        if dim.dim_param:
            symbols[dim.dim_param] = size
        _set_dimension(dim, size)


def _set_dimension(dim: TensorShapeProto.Dimension, size: int | str) -> None:
    if isinstance(size, int):
        dim.dim_value = size
    else:
        dim.dim_param = size


def _bind_input(
    value: ValueInfoProto, input_spec: Input | None, symbols: Mapping[str, int | str]
) -> Value:
    """Bind one input: all sizes are static or named by the pipeline."""
    dtype = _read_dtype(value)
    kind = _require_rank(value).type.tensor_type
    sizes_by_axis = {} if input_spec is None else dict(enumerate(input_spec.shape))
    for axis, dim in enumerate(kind.shape.dim):
        if input_spec is None and dim.dim_param in symbols:
            sizes_by_axis[axis] = symbols[dim.dim_param]
            _set_dimension(dim, sizes_by_axis[axis])
        if not dim.HasField("dim_value") and axis not in sizes_by_axis:
            symbol = f" ({dim.dim_param!r})" if dim.dim_param else ""
            raise ModelError(
                f"dimension {axis}{symbol} of input {value.name!r} is open; {_advise_shape(value)}"
            )
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
    names = tuple(dim.dim_param for dim in kind.shape.dim)
    static_sizes = [dim.dim_value for dim in kind.shape.dim if dim.HasField("dim_value")]
    count_elements(static_sizes, f"input {value.name!r}")
    dimensions = names if any(names) else ()
    return Value(name=value.name, shape=shape, dtype=dtype, dimensions=dimensions)


def _require_rank(value: ValueInfoProto) -> ValueInfoProto:
    if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
        raise ModelError(
            f"input {value.name!r} has no shape, not even a rank; {_advise_shape(value)}"
        )
    return value


def _advise_shape(value: ValueInfoProto) -> str:
    return f"write its shape in the pipeline as model.inputs.{value.name}.shape"


def _read_dtype(value: ValueInfoProto) -> str:
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"input {value.name!r} is not a tensor")
    return to_dtype_name(value.type.tensor_type.elem_type, f"input {value.name!r}")


def infer_shapes(model: ModelProto) -> ModelProto:
    """Infer types from the inputs; returns a copy of the model.

    Raises `ModelError` if operators contradict each other or declared types.
    """
    for graph in list_graphs(model.graph):
        del graph.value_info[:]  # optional notes of the exporter, often outdated
    try:
        return _check_inferred(model)
    except _ERRORS:  # once more with named nodes, for the message
        _check_values(model.graph)
        name_nodes(model.graph)
    try:
        return _check_inferred(model)
    except _ERRORS as error:
        raise ModelError(_describe_error(str(error))) from error


def check_types(graph: GraphProto) -> None:
    """Reject a graph with values of an unsupported element type.

    bfloat16 is supported except for inputs and outputs, and int4 as a result of Cast, stored in
    int8. TVM computes wrong values for other dtypes that NumPy lacks.
    """
    for inner in list_graphs(graph):
        types = {value.name: value.type.tensor_type.elem_type for value in inner.value_info}
        for node in inner.node:
            supported_types = _CAST_TYPES if node.op_type == "Cast" else _RESULT_TYPES
            for name in node.output:
                if types.get(name, 0) not in supported_types:
                    to_dtype_name(types[name], f"output {name!r} of {describe_node(node)}")


def _check_inferred(model: ModelProto) -> ModelProto:
    onnx.checker.check_model(_add_output_shapes(model))
    return infer_strictly(model)


def _check_values(graph: GraphProto) -> None:
    """Reject inputs and outputs without name or type: onnx's message does not identify them."""
    for kind, values in (("input", graph.input), ("output", graph.output)):
        for place, value in enumerate(values):
            if not value.name:
                raise ModelError(f"{kind} {place} of the graph has no name")
            is_tensor = value.type.WhichOneof("value") == "tensor_type"
            if is_tensor and not value.type.tensor_type.elem_type:
                raise ModelError(f"{kind} {value.name!r} has no element type")


def read_static_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Return the static shapes of an inferred graph's values by name.

    Raises `ModelError` for a shape with too many elements.
    """
    return {name: shape for name, shape, _ in _list_values(graph)}


def count_bytes(graph: GraphProto) -> dict[str, int]:
    """Count the bytes of values and initializers of an inferred graph, as far as known."""
    return {
        name: math.prod(shape) * _ITEM_BYTES[kind]
        for inner in list_graphs(graph)
        for name, shape, kind in _list_values(inner)
        if kind in _ITEM_BYTES
    } | {
        tensor.name: math.prod(tensor.dims) * _ITEM_BYTES[tensor.data_type]
        for tensor in graph.initializer
    }


def _list_values(graph: GraphProto) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield (name, shape, element type) of each value of static shape."""
    counted: set[tuple[int, ...]] = set()
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = read_type(value.type)
        if (shape := kind.shape) is not None:
            if shape not in counted:
                count_elements(shape, f"value {value.name!r}")
                counted.add(shape)
            yield value.name, shape, kind.element


def _add_output_shapes(model: ModelProto) -> ModelProto:
    """Copy a model with an empty shape for each output without one: the checker requires it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return copy


def _describe_error(message: str) -> str:
    """Shorten onnx's error message to one line about the first failing node.

    A node in a branch or a body follows the node that contains it, on the same line.
    """
    first, *other_lines = filter(None, map(str.strip, _TAGS.sub("", message).splitlines()))
    count = sum(other.startswith("(op_type:") for other in other_lines)
    suffix = f" (and {count} more {'node' if count == 1 else 'nodes'})" if count else ""
    if not count:
        first = " ".join((first, *other_lines))
    first = _CONTEXT.sub(r"node '\2' (\3): \1", " ".join(first.split()))
    return first[: _LONGEST - len(suffix)] + suffix


def _quote_names(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
