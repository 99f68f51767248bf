"""Tensors without elements, which are constants: there is nothing in them to compute.

A Slice that leaves nothing, a part of size 0 of a Split, TopK of 0 and whatever is made of those
alone become constants. A Concat leaves them out. So no operator of TVM meets an axis without
elements, as long as shapes are known.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)
from onnx.numpy_helper import to_array

from autopipe.compiler.frontends.onnx.reading import shapes
from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.compiler.frontends.onnx.reading.tensors import (
    DTYPES,
    Array,
    list_bodies,
    list_graphs,
    read_constant,
)

_STEPS: Final = 4
"""The input of Slice that says how far apart elements are."""
_OPTIONAL_UPDATES: Final = {"ScatterElements", "ScatterND", "Scatter"}
"""Operators that return their first input where their second one has no elements."""


def fold_empty_tensors(model: ModelProto) -> None:
    """Make constants of a model's tensors without elements, in place, and of what they decide."""
    decided: set[str] = set()
    while _fold_once(model, decided):
        pass
    _make_nodes(model.graph)


def _fold_once(model: ModelProto, decided: set[str]) -> bool:
    """Fold what is empty now; add the names that became constants to those that are decided."""
    inferred = _infer_graph(model)
    if _clamp_starts(model.graph, inferred):
        return True
    empty = _list_empty_arrays(inferred)
    if not empty:
        return False
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    changed = False
    for graph in list_graphs(model.graph):
        stored = {tensor.name: tensor for tensor in graph.initializer}
        stored |= {one.name: one for one in map(read_constant, graph.node) if one is not None}
        known = _Known(empty, stored, decided, opset)
        for node in list(graph.node):
            if node.op_type != "Constant" and not any(list_bodies(node)):
                changed |= _replace_decided(graph, node, known)
    return changed


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the tensors of a graph, by name."""

    empty: Mapping[str, Array]
    stored: Mapping[str, TensorProto]
    decided: set[str]
    """Those that became constants because something was empty."""
    opset: int


def _replace_decided(graph: GraphProto, node: NodeProto, known: _Known) -> bool:
    """Replace a node by constants, or take what is empty out of it; tell whether it changed."""
    empty, stored = known.empty, known.stored
    results = [name for name in node.output if name]
    if all(name in empty for name in results):
        _replace_node(graph, node, {name: empty[name] for name in results})
        return True
    if node.op_type == "Split":
        return _drop_empty_parts(graph, node, empty, stored)
    given = [name for name in node.input if name]
    without = [name for name in given if name not in empty]
    if len(without) == len(given):
        if known.decided.isdisjoint(given):
            return False
    elif node.op_type == "Concat" and without:
        del node.input[:]
        node.input.extend(without)
        return True
    elif node.op_type in _OPTIONAL_UPDATES and node.input[1] in empty:
        node.CopyFrom(helper.make_node("Identity", [node.input[0]], results, name=node.name))
        return True
    computed = _compute_node(node, known)
    if computed:
        _replace_node(graph, node, computed)
        known.decided.update(computed)
    return bool(computed)


def _compute_node(node: NodeProto, known: _Known) -> dict[str, Array]:
    """Return what a node computes of constants, nothing where an input is none."""
    given = {name for name in node.input if name}
    values = {name: to_array(known.stored[name]) for name in given if name in known.stored}
    values |= {name: known.empty[name] for name in given if name in known.empty}
    return _evaluate_node(node, values, known.opset) if len(values) == len(given) else {}


def _drop_empty_parts(
    graph: GraphProto,
    split: NodeProto,
    empty: Mapping[str, Array],
    stored: Mapping[str, TensorProto],
) -> bool:
    """Take the parts of size 0 out of a Split whose sizes are stored."""
    left = [name for name in split.output if name not in empty]
    field = next((each for each in split.attribute if each.name == "split"), None)
    sizes = list(field.ints) if field is not None else []
    if len(split.input) > 1 and split.input[1] in stored:
        sizes = to_array(stored[split.input[1]]).tolist()
    if len(left) == len(split.output) or 0 not in sizes:
        return False
    before = {name: empty[name] for name in split.output if name in empty}
    kept = [size for size in sizes if size]
    if field is not None:
        field.CopyFrom(helper.make_attribute("split", kept))
    else:
        name = f"{split.input[1]}_{left[0]}"
        graph.initializer.append(numpy_helper.from_array(np.array(kept, np.int64), name))
        split.input[1] = name
    del split.output[:]
    split.output.extend(left)
    _insert_constants(graph, split, before)
    return True


def _replace_node(graph: GraphProto, node: NodeProto, values: Mapping[str, Array]) -> None:
    _insert_constants(graph, node, values)
    graph.node.remove(node)


def _insert_constants(graph: GraphProto, node: NodeProto, values: Mapping[str, Array]) -> None:
    """Put constants before a node."""
    place = list(graph.node).index(node)
    for name, array in values.items():
        value = numpy_helper.from_array(array)
        graph.node.insert(place, helper.make_node("Constant", [], [name], value=value))


def _clamp_starts(graph: GraphProto, inferred: GraphProto) -> bool:
    """Have steps back start within the tensor: ONNX's inference takes a start below it for none."""
    slices = [node for node in graph.node if node.op_type == "Slice"]
    if not slices:
        return False
    stored = {tensor.name: tensor for tensor in graph.initializer}
    known = {
        value.name: shapes.read_value_shape(value)
        for value in (*inferred.input, *inferred.value_info)
    }
    changed = False
    for node in slices:
        given = {slot: name for slot, name in enumerate(node.input) if name and slot}
        slots = {slot: stored[name] for slot, name in given.items() if name in stored}
        sizes = known.get(node.input[0])
        if sizes is None or _STEPS not in slots or len(slots) < len(given):
            continue
        starts, _, axes, steps = (
            to_array(slots[slot]).tolist() if slot in slots else range(len(sizes))
            for slot in range(1, _STEPS + 1)
        )
        wanted = [
            max(start, -sizes[axis]) if step < 0 else start
            for start, axis, step in zip(starts, axes, steps, strict=False)
        ]
        if wanted != starts:
            name = f"{node.output[0]}_starts"
            dtype = to_array(slots[1]).dtype
            graph.initializer.append(numpy_helper.from_array(np.array(wanted, dtype), name))
            node.input[1] = name
            changed = True
    return changed


def _make_nodes(graph: GraphProto) -> None:
    """Store what is empty and a result of the graph by a Constant: TVM loads no empty constants.

    Its converter makes such a result of an input.
    """
    results = {value.name for value in graph.output}
    for tensor in [one for one in graph.initializer if one.name in results and 0 in one.dims]:
        value = helper.make_node("Constant", [], [tensor.name], value=tensor)
        graph.node.insert(0, value)
        graph.initializer.remove(tensor)


def _infer_graph(model: ModelProto) -> GraphProto:
    """Return the graph with its shapes, an empty one where ONNX can not tell them."""
    try:
        return infer_types(model).graph
    except onnx.shape_inference.InferenceError:
        return onnx.GraphProto()  # the importer names the node


def _list_empty_arrays(inferred: GraphProto) -> dict[str, Array]:
    """Return the tensors without elements by name: those that are computed, and those stored."""
    found = {}
    for graph in list_graphs(inferred):
        for value in (*graph.input, *graph.value_info, *graph.output):
            shape, kind = shapes.read_value_shape(value), value.type.tensor_type.elem_type
            if shape is not None and 0 in shape and kind in DTYPES:
                found[value.name] = np.empty(shape, DTYPES[kind][0])
        constants = (one for one in map(read_constant, graph.node) if one is not None)
        for tensor in (*graph.initializer, *constants):
            if 0 in tensor.dims and tensor.data_type in DTYPES:
                found[tensor.name] = np.empty(tuple(tensor.dims), DTYPES[tensor.data_type][0])
    return found


def _evaluate_node(node: NodeProto, values: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """Return what a node computes of arrays, nothing where ONNX's evaluator can not tell."""
    from onnx.reference import ReferenceEvaluator

    named: Sequence[ValueInfoProto] = [helper.make_empty_tensor_value_info(name) for name in values]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    made = helper.make_model(
        helper.make_graph([node], "one", named, results),
        opset_imports=[helper.make_opsetid("", opset)],
    )
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays = ReferenceEvaluator(made).run(None, dict(values))
    except Exception:  # noqa: BLE001 - of an evaluator; the importer names the node
        return {}
    return {value.name: np.asarray(each) for value, each in zip(results, arrays, strict=True)}
