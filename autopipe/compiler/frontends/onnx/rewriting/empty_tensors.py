"""Fold empty tensors (with a dimension of 0), which are constants.

An empty Slice, a part of size 0 of a Split, TopK with k = 0, and nodes that read only those become
constants. A Concat omits them. TVM's operators therefore get no axis of size 0, as far as shapes
are known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.numpy_helper import to_array

from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.compiler.frontends.onnx.reading.tensors import (
    DTYPES,
    Array,
    list_bodies,
    list_graphs,
    read_stored,
)
from autopipe.compiler.frontends.onnx.reading.value_types import UNKNOWN, ValueType, read_types
from autopipe.compiler.frontends.onnx.rewriting.constants import evaluate_node

_STEPS: Final = 4
"""Index of the input `steps` of Slice."""
_OPTIONAL_UPDATES: Final = {"ScatterElements", "ScatterND", "Scatter"}
"""Operators that return their first input if their second one is empty."""


def fold_empty_tensors(model: ModelProto) -> None:
    """Replace a model's empty tensors, and values computed from them, by constants, in place."""
    constant_names: set[str] = set()
    while _fold_once(model, constant_names):
        pass
    _make_nodes(model.graph)


def _fold_once(model: ModelProto, constant_names: set[str]) -> bool:
    """Fold the empty tensors of one round; adds the new constants to `constant_names`."""
    inferred_graph = _infer_graph(model)
    if _clamp_starts(model.graph, inferred_graph):
        return True
    empty = _list_empty_arrays(inferred_graph)
    if not empty:
        return False
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    changed = False
    for graph in list_graphs(model.graph):
        constants = _Known(empty, read_stored(graph), constant_names, opset)
        for node in list(graph.node):
            if node.op_type != "Constant" and not any(list_bodies(node)):
                changed |= _replace_decided(graph, node, constants)
    return changed


@dataclass(frozen=True, slots=True)
class _Known:
    """The constants of a graph by name."""

    empty: Mapping[str, Array]
    stored: Mapping[str, TensorProto]
    decided: set[str]
    """Names of values that became constants because an operand was empty."""
    opset: int


def _replace_decided(graph: GraphProto, node: NodeProto, constants: _Known) -> bool:
    """Replace a node by constants, or drop its empty operands; returns whether it changed."""
    empty, initializers = constants.empty, constants.stored
    results = [name for name in node.output if name]
    if all(name in empty for name in results):
        _replace_node(graph, node, {name: empty[name] for name in results})
        return True
    if node.op_type == "Split":
        return _drop_empty_parts(graph, node, empty, initializers)
    input_names = [name for name in node.input if name]
    nonempty_names = [name for name in input_names if name not in empty]
    if len(nonempty_names) == len(input_names):
        if constants.decided.isdisjoint(input_names):
            return False
    elif node.op_type == "Concat" and nonempty_names:
        del node.input[:]
        node.input.extend(nonempty_names)
        return True
    elif node.op_type in _OPTIONAL_UPDATES and node.input[1] in empty:
        node.CopyFrom(helper.make_node("Identity", [node.input[0]], results, name=node.name))
        return True
    values = _compute_node(node, constants)
    if values:
        _replace_node(graph, node, values)
        constants.decided.update(values)
    return bool(values)


def _compute_node(node: NodeProto, constants: _Known) -> dict[str, Array]:
    """Evaluate a node; {} if an input is not constant."""
    names = {name for name in node.input if name}
    values = {name: to_array(constants.stored[name]) for name in names if name in constants.stored}
    values |= {name: constants.empty[name] for name in names if name in constants.empty}
    return evaluate_node(node, values, constants.opset) or {} if len(values) == len(names) else {}


def _drop_empty_parts(
    graph: GraphProto,
    split: NodeProto,
    empty: Mapping[str, Array],
    initializers: Mapping[str, TensorProto],
) -> bool:
    """Drop the parts of size 0 from a Split with constant sizes."""
    remaining_outputs = [name for name in split.output if name not in empty]
    field = next((each for each in split.attribute if each.name == "split"), None)
    sizes = list(field.ints) if field is not None else []
    if len(split.input) > 1 and split.input[1] in initializers:
        sizes = to_array(initializers[split.input[1]]).tolist()
    if len(remaining_outputs) == len(split.output) or 0 not in sizes:
        return False
    before = {name: empty[name] for name in split.output if name in empty}
    nonzero_sizes = [size for size in sizes if size]
    if field is not None:
        field.CopyFrom(helper.make_attribute("split", nonzero_sizes))
    else:
        name = f"{split.input[1]}_{remaining_outputs[0]}"
        graph.initializer.append(numpy_helper.from_array(np.array(nonzero_sizes, np.int64), name))
        split.input[1] = name
    del split.output[:]
    split.output.extend(remaining_outputs)
    _insert_constants(graph, split, before)
    return True


def _replace_node(graph: GraphProto, node: NodeProto, values: Mapping[str, Array]) -> None:
    _insert_constants(graph, node, values)
    graph.node.remove(node)


def _insert_constants(graph: GraphProto, node: NodeProto, values: Mapping[str, Array]) -> None:
    """Insert Constant nodes before a node."""
    place = list(graph.node).index(node)
    for name, array in values.items():
        value = numpy_helper.from_array(array)
        graph.node.insert(place, helper.make_node("Constant", [], [name], value=value))


def _clamp_starts(graph: GraphProto, inferred_graph: GraphProto) -> bool:
    """Clamp the starts of slices with negative steps: ONNX infers an empty result below -size."""
    slices = [node for node in graph.node if node.op_type == "Slice"]
    if not slices:
        return False
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    types = read_types(inferred_graph)
    changed = False
    for node in slices:
        operands = {slot: name for slot, name in enumerate(node.input) if name and slot}
        slots = {
            slot: initializers[name] for slot, name in operands.items() if name in initializers
        }
        sizes = types.get(node.input[0], UNKNOWN).shape
        if sizes is None or _STEPS not in slots or len(slots) < len(operands):
            continue
        starts, _, axes, steps = (
            to_array(slots[slot]).tolist() if slot in slots else range(len(sizes))
            for slot in range(1, _STEPS + 1)
        )
        clamped_starts = [
            max(start, -sizes[axis]) if step < 0 else start
            for start, axis, step in zip(starts, axes, steps, strict=False)
        ]
        if clamped_starts != starts:
            name = f"{node.output[0]}_starts"
            dtype = to_array(slots[1]).dtype
            graph.initializer.append(numpy_helper.from_array(np.array(clamped_starts, dtype), name))
            node.input[1] = name
            changed = True
    return changed


def _make_nodes(graph: GraphProto) -> None:
    """Replace empty initializers that are graph outputs by Constant nodes.

    TVM loads no empty constants; our converter of Constant computes them in a kernel.
    """
    results = {value.name for value in graph.output}
    for tensor in [one for one in graph.initializer if one.name in results and 0 in one.dims]:
        value = helper.make_node("Constant", [], [tensor.name], value=tensor)
        graph.node.insert(0, value)
        graph.initializer.remove(tensor)


def _infer_graph(model: ModelProto) -> GraphProto:
    """Return the graph with inferred shapes, an empty graph if inference fails."""
    try:
        return infer_types(model).graph
    except onnx.shape_inference.InferenceError:
        return onnx.GraphProto()  # reported by the importer


def _list_empty_arrays(inferred_graph: GraphProto) -> dict[str, Array]:
    """List the empty tensors by name, computed and stored."""
    kinds: dict[str, ValueType] = {}
    for graph in list_graphs(inferred_graph):
        kinds |= read_types(graph)
        stored = read_stored(graph).items()
        kinds |= {name: ValueType(each.data_type, tuple(each.dims)) for name, each in stored}
    return {
        name: np.empty(kind.shape, DTYPES[kind.element][0])
        for name, kind in kinds.items()
        if kind.shape is not None and 0 in kind.shape and kind.element in DTYPES
    }
