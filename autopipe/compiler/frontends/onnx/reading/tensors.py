"""Tensors stored in a model: checks of type, size and data, and their values."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import (
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from autopipe.compiler.step_counter import count_bytes
from autopipe.errors import ModelError
from autopipe.formats.external_data import locate_data

Array = np.ndarray[Any, Any]
MAX_ELEMENTS = 2**32
"""Maximum number of elements of a tensor."""

# By ONNX element type: the dtype name, and the field of values outside `raw_data`.
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

_LISTED = {"value_float": np.float32, "value_floats": np.float32,
           "value_int": np.int64, "value_ints": np.int64}  # fmt: skip
"""Dtypes of the scalar and list attributes of Constant."""
_EXTERNAL = 1
MAX_DEPTH = 16
WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators with graphs among their attributes. `check_bodies` rejects graphs in others, whose
attributes need no look: that takes four times as long as the rest of a walk."""
HIDDEN_NAMES = {"If": "autopipe_If", "Loop": "autopipe_Loop"}
"""Names that hide control flow from TVM's importer: it computes both branches of an If beforehand,
which prevents fusion in the whole model."""
_WITH_GRAPHS = WITH_GRAPHS.union(HIDDEN_NAMES.values())


def to_dtype_name(number: int, label: str) -> str:
    """Convert an ONNX element type to TVM's dtype name."""
    if number not in DTYPES:
        dtype_names = ", ".join(name for name, _ in DTYPES.values())
        raise ModelError(f"{label} has element type {number}, which is none of {dtype_names}")
    return DTYPES[number][0]


def list_graphs(graph: GraphProto, depth: int = 0) -> Iterator[GraphProto]:
    """Yield a graph and every graph inside its nodes."""
    if depth > MAX_DEPTH:
        raise ModelError(f"graphs are nested deeper than {MAX_DEPTH} levels")
    yield graph
    for node in graph.node:
        if node.op_type in _WITH_GRAPHS:  # as in `list_bodies`, without a generator for each node
            for body in list_bodies(node):
                yield from list_graphs(body, depth + 1)


def check_bodies(graph: GraphProto) -> None:
    """Reject a node with a graph among its attributes whose operator takes none."""
    for node in list_nodes(graph):
        for attribute in node.attribute if node.op_type not in WITH_GRAPHS else ():
            if attribute.HasField("g") or attribute.graphs:
                raise ModelError(
                    f"{describe_node(node)} has a graph as attribute {attribute.name!r}, "
                    "which its operator does not take"
                )


def list_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph or a function, inner graphs included."""
    for node in graph.node:
        yield node
        for body in list_bodies(node):
            for inner in list_graphs(body, 1):
                yield from inner.node


def list_bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs inside a node."""
    for attribute in node.attribute if node.op_type in _WITH_GRAPHS else ():
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def describe_node(node: NodeProto) -> str:
    """Return a node's label for messages: its operator, and its name or that of its output."""
    return f"{node.op_type} {node.name or next(iter(node.output), '')!r}"


def read_attributes(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node by name."""
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def replace_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Replace the nodes of a graph by others, which may be some of its own."""
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def name_nodes(graph: GraphProto) -> None:
    """Name each unnamed node after its first output."""
    for node in list_nodes(graph):
        node.name = node.name or next(iter(node.output), "")


def read_constant(node: NodeProto) -> TensorProto | None:
    """Return the tensor of a Constant node, under the name of the node's output."""
    if node.op_type != "Constant" or len(node.attribute) != 1 or len(node.output) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.name in _LISTED:
        values = np.array(helper.get_attribute_value(attribute), _LISTED[attribute.name])
        return numpy_helper.from_array(values, node.output[0])
    if not attribute.HasField("t"):
        return None
    attribute.t.name = node.output[0]
    return attribute.t


def read_stored(graph: GraphProto) -> dict[str, TensorProto]:
    """Return the tensors of a graph by name: its initializers and those of its Constants."""
    constants = (tensor for node in graph.node if (tensor := read_constant(node)) is not None)
    return {tensor.name: tensor for tensor in (*graph.initializer, *constants)}


def count_uses(graph: GraphProto) -> Counter[str]:
    """Count the uses of each value by nodes, also of inner graphs, and as an output."""
    uses: Counter[str] = Counter()
    for inner in list_graphs(graph):
        uses.update(name for node in inner.node for name in node.input)
        uses.update(value.name for value in inner.output)
    return uses


def list_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield every tensor stored in a graph, including attributes and inner graphs."""
    for inner in list_graphs(graph):
        yield from inner.initializer
        for node in inner.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def check_tensor(tensor: TensorProto, model: Path | None = None) -> None:
    """Reject a tensor of unsupported type, absurd size or inconsistent data.

    `model` is the path that external data is relative to; without it there must be none.
    """
    label = f"tensor {tensor.name!r}"
    if tensor.HasField("segment"):
        raise ModelError(f"{label} is stored in segments, which is not supported; store it whole")
    name = to_dtype_name(tensor.data_type, label)
    count = count_elements(tensor.dims, label)
    if model is not None and tensor.data_location == _EXTERNAL:
        _find_extent(tensor, model)
        return
    if tensor.HasField("raw_data"):
        actual_count, required_count, unit = (
            len(tensor.raw_data),
            count * _read_itemsize(name),
            "bytes",
        )
    else:
        actual_count, required_count, unit = (
            len(getattr(tensor, DTYPES[tensor.data_type][1])),
            count,
            "values",
        )
    if actual_count != required_count:
        raise ModelError(f"{label} needs {required_count} {unit} of data and has {actual_count}")


def count_elements(dims: Sequence[int], label: str) -> int:
    """Return the product of dimensions; raises ModelError for negative or absurd ones."""
    if any(dim < 0 for dim in dims):
        raise ModelError(f"{label} has a negative dimension: {list(dims)}")
    count = math.prod(dims)
    if count > MAX_ELEMENTS:
        raise ModelError(f"{label} has {count} elements, more than {MAX_ELEMENTS}: {list(dims)}")
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


def read_arrays(tensors: Mapping[str, TensorProto], model: Path) -> Iterator[tuple[str, Array]]:
    """Yield the names and values of weights as in `read_array`, and count their bytes."""
    sizes = {
        name: math.prod(tensor.dims) * _read_itemsize(DTYPES[tensor.data_type][0])
        for name, tensor in tensors.items()
    }
    report = count_bytes("MiB of weights read", sum(sizes.values()))
    for name, tensor in tensors.items():
        yield name, read_array(tensor, model)
        report(sizes[name])


def read_location(tensor: TensorProto) -> str | None:
    """Return the location of a tensor's external data, None if it is in the model."""
    if tensor.data_location != _EXTERNAL:
        return None
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _find_extent(tensor: TensorProto, model: Path) -> tuple[Path, int]:
    """Return the file of a tensor's external data and the offset in it."""
    label = f"tensor {tensor.name!r}"
    name = to_dtype_name(tensor.data_type, label)
    required_bytes = count_elements(tensor.dims, label) * _read_itemsize(name)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        file = locate_data(entries.get("location", ""), model)
    except ModelError as error:
        raise ModelError(f"{label}: {error}") from error
    offset = _read_number(entries.get("offset", "0"), f"{label}: offset")
    length = _read_number(entries.get("length", str(required_bytes)), f"{label}: length")
    size = file.stat().st_size
    if length != required_bytes or offset + required_bytes > size:
        raise ModelError(
            f"{label} needs {required_bytes} bytes of external data at {offset}; it claims "
            f"{length}, and the file {file.name!r} has {size}"
        )
    return file, offset


def _read_number(text: str, label: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(2**63)):
        raise ModelError(f"{label} of external data is {text!r}, not a number of bytes")
    return int(text)


def _read_itemsize(name: str) -> int:
    return np.dtype(name).itemsize
