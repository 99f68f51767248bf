"""The shapes of a model: inputs bound to the pipeline's, the rest inferred and checked."""

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
from autopipe.config.model import Input
from autopipe.config.suggestion import find_closest
from autopipe.errors import ConfigError, ModelError

_LONGEST = 500
_MOST_FIXED = 1024
"""Elements of an input that is one number everywhere."""
_FOUR_BITS = (TensorProto.INT4, TensorProto.UINT4)
_ERRORS = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)
_CONTEXT = re.compile(
    r"^(.*) ==> Context: Bad node spec for node\. Name: (.*) OpType: (\w+)( ==> Context.*)?$"
)
_TAGS = re.compile(r"\[\w+Error\] |Inference error\(s\): ")


def bind_inputs(graph: GraphProto, inputs: Mapping[str, Input]) -> tuple[Value, ...]:
    """Give every input of a graph the shape that the model and the pipeline agree on.

    A size that the pipeline names stays open under that name. A symbol bound for one input holds
    for all. Raises `ConfigError` where the pipeline
    contradicts the model, `ModelError` where a dimension stays open.
    """
    names = [value.name for value in graph.input]
    for name in inputs.keys() - set(names):
        meant = find_closest(name, names)
        hint = f"; did you mean {meant!r}?" if meant else ";"
        raise ConfigError(
            f"model.inputs.{name}: the model has no such input{hint} it has {_quote_names(names)}"
        )
    symbols: dict[str, int | str] = {}
    for value in graph.input:
        if value.name in inputs:
            _give_shape(value, inputs[value.name], symbols)
    return tuple(_bind_input(value, inputs.get(value.name), symbols) for value in graph.input)


def fix_inputs(graph: GraphProto, inputs: Mapping[str, Input]) -> dict[str, Input]:
    """Make constants of the inputs that have a value, and return the others.

    Raises `ConfigError` for a value that the input's type does not hold, and for a wrong shape.
    """
    for index, value in reversed(list(enumerate(graph.input))):
        given = inputs.get(value.name)
        if given is None or given.value is None:
            continue
        _give_shape(value, given, {})
        shape = given.sizes
        if math.prod(shape) > _MOST_FIXED:
            raise ConfigError(
                f"model.inputs.{value.name}.value: an input of {list(shape)} is no number"
            )
        dtype, where = _read_dtype(value), f"model.inputs.{value.name}.value"
        array = np.full(shape, given.value).astype(dtype)
        if not np.array_equal(array, np.full(shape, given.value)) and array.dtype.kind != "f":
            raise ConfigError(f"{where}: {given.value} is no {dtype}")
        graph.initializer.append(numpy_helper.from_array(array, value.name))
        del graph.input[index]
    return {name: given for name, given in inputs.items() if given.value is None}


def list_unbound_inputs(graph: GraphProto) -> tuple[Value, ...]:
    """Return every input of a graph, which stays as it is, with open dimensions taken as 1."""
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
    """Return the shape of each input as the model declares it: sizes, symbols, None if open."""
    return {
        value.name: tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
            for dim in value.type.tensor_type.shape.dim
        )
        for value in graph.input
        if value.type.tensor_type.HasField("shape")
    }


def _give_shape(value: ValueInfoProto, given: Input, symbols: dict[str, int | str]) -> None:
    where = f"model.inputs.{value.name}"
    kind = value.type.tensor_type
    dtype = _read_dtype(value)
    if given.dtype not in (None, dtype):
        raise ConfigError(f"{where}.dtype: {given.dtype} is given, the model has {dtype}")
    if not kind.HasField("shape"):
        for _ in given.shape:
            kind.shape.dim.add()
    if len(given.shape) != len(kind.shape.dim):
        raise ConfigError(
            f"{where}.shape: {list(given.shape)} has {len(given.shape)} dimensions, "
            f"the model has {len(kind.shape.dim)}"
        )
    for axis, (dim, size) in enumerate(zip(kind.shape.dim, given.shape, strict=True)):
        fixed = dim.dim_value if dim.HasField("dim_value") else symbols.get(dim.dim_param)
        if fixed is not None and fixed != size:
            raise ConfigError(
                f"{where}.shape: dimension {axis} is {size}, the model has "
                f"{dim.dim_param or fixed}{f' = {fixed}' if dim.dim_param else ''} there"
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
    value: ValueInfoProto, given: Input | None, symbols: Mapping[str, int | str]
) -> Value:
    """Return an input whose sizes are all known or named by the pipeline."""
    dtype = _read_dtype(value)
    kind = _require_rank(value).type.tensor_type
    named = {} if given is None else dict(enumerate(given.shape))
    for axis, dim in enumerate(kind.shape.dim):
        if given is None and dim.dim_param in symbols:
            named[axis] = symbols[dim.dim_param]
            _set_dimension(dim, named[axis])
        if not dim.HasField("dim_value") and axis not in named:
            symbol = f" ({dim.dim_param!r})" if dim.dim_param else ""
            raise ModelError(
                f"dimension {axis}{symbol} of input {value.name!r} is open; {_advise_shape(value)}"
            )
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
    names = tuple(dim.dim_param for dim in kind.shape.dim)
    fixed = [dim.dim_value for dim in kind.shape.dim if dim.HasField("dim_value")]
    count_elements(fixed, f"input {value.name!r}")
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
    """Return the model with the types that follow from the inputs.

    Raises `ModelError` where operators do not fit each other or what the model declares.
    """
    for graph in list_graphs(model.graph):
        del graph.value_info[:]  # a note of whoever wrote the file, often out of date
    try:
        return _check_inferred(model)
    except _ERRORS:  # once more, so that the message says where
        _check_values(model.graph)
        name_nodes(model.graph)
    try:
        return _check_inferred(model)
    except _ERRORS as error:
        raise ModelError(_describe_error(str(error))) from error


def check_types(graph: GraphProto) -> None:
    """Refuse a graph that computes values of a type that its converters know nothing of.

    bfloat16 is known as long as it is neither an input nor an output, and so are four bits that a
    Cast makes, which are kept in eight. TVM makes other numbers of others that numpy lacks.
    """
    for inner in list_graphs(graph):
        types = {value.name: value.type.tensor_type.elem_type for value in inner.value_info}
        for node in inner.node:
            known = {0, TensorProto.BFLOAT16, *(_FOUR_BITS if node.op_type == "Cast" else ())}
            for name in node.output:
                if types.get(name, 0) not in known:
                    to_dtype_name(types[name], f"output {name!r} of {describe_node(node)}")


def _check_inferred(model: ModelProto) -> ModelProto:
    onnx.checker.check_model(_add_output_shapes(model))
    return infer_strictly(model)


def _check_values(graph: GraphProto) -> None:
    """Refuse inputs and outputs without a name or a type, of which onnx says not which it is."""
    for kind, values in (("input", graph.input), ("output", graph.output)):
        for place, value in enumerate(values):
            if not value.name:
                raise ModelError(f"{kind} {place} of the graph has no name")
            typed = value.type.WhichOneof("value") == "tensor_type"
            if typed and not value.type.tensor_type.elem_type:
                raise ModelError(f"{kind} {value.name!r} has no element type")


def read_static_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the values of an inferred graph, where they are static.

    Raises `ModelError` for one that is absurd.
    """
    return {name: shape for name, shape, _ in _list_values(graph)}


def count_bytes(graph: GraphProto) -> dict[str, int]:
    """Return the bytes of the values and tensors of an inferred graph, where they are known."""
    return {
        name: math.prod(shape) * np.dtype(DTYPES[kind][0]).itemsize
        for inner in list_graphs(graph)
        for name, shape, kind in _list_values(inner)
        if kind in DTYPES
    } | {
        tensor.name: math.prod(tensor.dims) * np.dtype(DTYPES[tensor.data_type][0]).itemsize
        for tensor in graph.initializer
    }


def _list_values(graph: GraphProto) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield name, shape and element type of each value whose shape is static."""
    for value in (*graph.input, *graph.value_info, *graph.output):
        shape = read_value_shape(value)
        if shape is not None:
            count_elements(shape, f"value {value.name!r}")
            yield value.name, shape, value.type.tensor_type.elem_type


def read_value_shape(value: ValueInfoProto) -> tuple[int, ...] | None:
    """Return the shape of a value, or None if it is not static."""
    kind = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in kind.shape.dim if dim.HasField("dim_value"))
    return shape if kind.HasField("shape") and len(shape) == len(kind.shape.dim) else None


def _add_output_shapes(model: ModelProto) -> ModelProto:
    """Return a model for the checker, which wants some shape in places where runtimes do not."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return copy


def _describe_error(message: str) -> str:
    """Return onnx's account of an error as one line: the first node, which the others follow.

    A node in a branch or a body stands behind the one that it is inside of, on the same line.
    """
    first, *others = filter(None, map(str.strip, _TAGS.sub("", message).splitlines()))
    count = sum(other.startswith("(op_type:") for other in others)
    more = f" (and {count} more {'node' if count == 1 else 'nodes'})" if count else ""
    if not count:
        first = " ".join((first, *others))
    first = _CONTEXT.sub(r"node '\2' (\3): \1", " ".join(first.split()))
    return first[: _LONGEST - len(more)] + more


def _quote_names(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
