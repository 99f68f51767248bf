"""Tensors stored in a model: what they claim, whether it is true, and their values."""

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, numpy_helper

from autopipe.compiler.frontends.onnx.reading.source import locate_data
from autopipe.errors import ModelError

Array = np.ndarray[Any, Any]
MAX_ELEMENTS = 2**32
"""No tensor of a model may have more elements than this."""

# ONNX's number of an element type: its name, and the field of values outside `raw_data`.
DTYPES = {
    1: ("float32", "float_data"),
    2: ("uint8", "int32_data"),
    3: ("int8", "int32_data"),
    4: ("uint16", "int32_data"),
    5: ("int16", "int32_data"),
    6: ("int32", "int32_data"),
    7: ("int64", "int64_data"),
    9: ("bool", "int32_data"),
    10: ("float16", "int32_data"),
    11: ("float64", "double_data"),
    12: ("uint32", "uint64_data"),
    13: ("uint64", "uint64_data"),
}

_EXTERNAL = 1
MAX_DEPTH = 16


def to_dtype_name(number: int, what: str) -> str:
    """Return TVM's name of an ONNX element type."""
    if number not in DTYPES:
        known = ", ".join(name for name, _ in DTYPES.values())
        raise ModelError(f"{what} has element type {number}, which is none of {known}")
    return DTYPES[number][0]


def list_graphs(graph: GraphProto, depth: int = 0) -> Iterator[GraphProto]:
    """Yield a graph and every graph inside its nodes."""
    if depth > MAX_DEPTH:
        raise ModelError(f"graphs are nested deeper than {MAX_DEPTH} levels")
    yield graph
    for node in graph.node:
        for inner in list_bodies(node):
            yield from list_graphs(inner, depth + 1)


def list_nodes(whole: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph or a function, and those inside them."""
    for node in whole.node:
        yield node
        for body in list_bodies(node):
            for inner in list_graphs(body, 1):
                yield from inner.node


def list_bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs inside a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def describe_node(node: NodeProto) -> str:
    """Return what a message calls a node: its operator, and its name or that of its result."""
    return f"{node.op_type} {node.name or next(iter(node.output), '')!r}"


def name_nodes(graph: GraphProto) -> None:
    """Call each node that has no name after what it makes."""
    for inner in list_graphs(graph):
        for node in inner.node:
            node.name = node.name or next(iter(node.output), "")


def read_constant(node: NodeProto) -> TensorProto | None:
    """Return the tensor of a Constant node, under the name of the node's output."""
    if node.op_type != "Constant" or len(node.attribute) != 1 or len(node.output) != 1:
        return None
    if not node.attribute[0].HasField("t"):
        return None
    tensor = node.attribute[0].t
    tensor.name = node.output[0]
    return tensor


def count_uses(graph: GraphProto) -> Counter[str]:
    """Count how often each value is read, by nodes of inner graphs and as an output too."""
    found: Counter[str] = Counter()
    for inner in list_graphs(graph):
        found.update(name for node in inner.node for name in node.input)
        found.update(value.name for value in inner.output)
    return found


def list_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield every tensor stored in a graph, those in attributes and inner graphs too."""
    for inner in list_graphs(graph):
        yield from inner.initializer
        for node in inner.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def check_tensor(tensor: TensorProto, model: Path | None = None) -> None:
    """Refuse a tensor whose type, size or data can not be what it says.

    `model` is where external data is looked for; without one there has to be none.
    """
    what = f"tensor {tensor.name!r}"
    if tensor.HasField("segment"):
        raise ModelError(f"{what} is stored in segments, which is not supported; store it whole")
    name = to_dtype_name(tensor.data_type, what)
    count = count_elements(tensor.dims, what)
    if model is not None and tensor.data_location == _EXTERNAL:
        _find_extent(tensor, model)
        return
    if tensor.HasField("raw_data"):
        found, needed, unit = len(tensor.raw_data), count * _read_itemsize(name), "bytes"
    else:
        found, needed, unit = len(getattr(tensor, DTYPES[tensor.data_type][1])), count, "values"
    if found != needed:
        raise ModelError(f"{what} needs {needed} {unit} of data and has {found}")


def count_elements(dims: Sequence[int], what: str) -> int:
    """Return the product of dimensions, refusing absurd ones."""
    if any(dim < 0 for dim in dims):
        raise ModelError(f"{what} has a negative dimension: {list(dims)}")
    count = math.prod(dims)
    if count > MAX_ELEMENTS:
        raise ModelError(f"{what} has {count} elements, more than {MAX_ELEMENTS}: {list(dims)}")
    return count


def read_array(tensor: TensorProto, model: Path) -> Array:
    """Return the values of a tensor that passed `check_tensor`, from the model or its data file."""
    if tensor.data_location != _EXTERNAL:
        values: Array = numpy_helper.to_array(tensor)
        return values
    file, offset = _find_extent(tensor, model)
    dtype = np.dtype(DTYPES[tensor.data_type][0]).newbyteorder("<")
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        stream.seek(offset)
        flat = np.fromfile(stream, dtype, math.prod(tensor.dims))
    return flat.reshape(tuple(tensor.dims))


def read_location(tensor: TensorProto) -> str | None:
    """Return where a tensor says its data is, None if in the model itself."""
    if tensor.data_location != _EXTERNAL:
        return None
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _find_extent(tensor: TensorProto, model: Path) -> tuple[Path, int]:
    """Return the file of a tensor's external data and the offset in it."""
    what = f"tensor {tensor.name!r}"
    name = to_dtype_name(tensor.data_type, what)
    needed = count_elements(tensor.dims, what) * _read_itemsize(name)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        file = locate_data(entries.get("location", ""), model)
    except ModelError as error:
        raise ModelError(f"{what}: {error}") from error
    offset = _read_number(entries.get("offset", "0"), f"{what}: offset")
    length = _read_number(entries.get("length", str(needed)), f"{what}: length")
    size = file.stat().st_size
    if length != needed or offset + needed > size:
        raise ModelError(
            f"{what} needs {needed} bytes of external data at {offset}; it claims {length}, "
            f"and the file {file.name!r} has {size}"
        )
    return file, offset


def _read_number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(2**63)):
        raise ModelError(f"{what} of external data is {text!r}, not a number of bytes")
    return int(text)


def _read_itemsize(name: str) -> int:
    return np.dtype(name).itemsize
