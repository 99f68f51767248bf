"""The gate: nothing of a model reaches TVM that was not checked here.

The checks run in a child process first. What gets through it does so again in this process,
on the same bytes, so that nothing the child made has to be trusted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, TensorProto, inliner, numpy_helper

from autopipe.compiler.frontends import bounds
from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.control.decided_branches import replace_known_branches
from autopipe.compiler.frontends.onnx.control.lift_tensors import lift_tensors
from autopipe.compiler.frontends.onnx.reading import (
    check_operators,
    exporter_forms,
    memory,
    shapes,
    source,
    tensors,
    window_fit,
)
from autopipe.compiler.frontends.onnx.reading.tensors import count_uses
from autopipe.compiler.frontends.onnx.reading.weights import declare_weights, detach_weights
from autopipe.compiler.frontends.onnx.rewriting import expand_operators
from autopipe.config.dimension import Dimension, format_sizes, list_probe_sizes
from autopipe.config.model import Input
from autopipe.errors import ModelError
from autopipe.processes.sandbox import run_in_sandbox

SECONDS = 60
"""CPU time the check of a model may take; twice this by the clock."""
_MEMORY = 2**30
_IR_WITHOUT_WEIGHTS_AMONG_INPUTS = 4


@dataclass(frozen=True)
class Vetted:
    """A model that passed: its graph, and the weights that were taken out of it."""

    model: ModelProto
    """ModelProto; a weight is a typed input of its graph, after the model's own inputs."""
    weights: Mapping[str, TensorProto]
    """TensorProtos of the weights by name, in the order of the file."""
    inputs: tuple[Value, ...]
    shapes: Mapping[str, tuple[int, ...]]
    """Static shapes of values by name, as far as ONNX can infer them."""
    opset: int


def admit_model(
    data: bytes,
    path: Path,
    inputs: Mapping[str, Input],
    dimensions: Mapping[str, Dimension] = MappingProxyType({}),
) -> Vetted:
    """Check the bytes of the model file at `path`, its inputs bound to the pipeline's shapes.

    With open sizes it is checked at the ends of their ranges, near them and at likely sizes. Raises
    `ModelError` for what can not be used, `ConfigError` where `inputs` do not fit.
    """
    memory = _MEMORY + 4 * len(data)
    run_in_sandbox(lambda: _try_model(data, path, inputs), memory=memory, seconds=SECONDS)
    for sizes in list_probe_sizes(dimensions):
        if 0 in sizes.values():  # as a fixed size it would be refused
            continue
        fixed = {name: given.at(sizes) for name, given in inputs.items()}
        try:
            run_in_sandbox(partial(_try_at, data, path, fixed), memory=memory, seconds=SECONDS)
        except ModelError as error:
            advice = "another range, or a multiple, in model.dimensions may fit"
            raise ModelError(f"with {format_sizes(sizes)}: {error}; {advice}") from error
    return vet_model(data, path, inputs)


def sketch_model(data: bytes, path: Path) -> Vetted:
    """Check the bytes of a model whose open dimensions nobody has bound: each counts as 1.

    Operators that would fit each other in other sizes are not refused. Raises `ModelError`.
    """
    run_in_sandbox(
        lambda: _try_model(data, path, None), memory=_MEMORY + 4 * len(data), seconds=SECONDS
    )
    return vet_model(data, path, None)


def read_declared_shapes(data: bytes) -> dict[str, tuple[int | str | None, ...] | None]:
    """Return the shape of each input as the model declares it: sizes, symbols, None if nameless.

    None alone stands for an input of unknown rank. Raises `ModelError` for bytes that are no model.
    """
    run_in_sandbox(lambda: _try_parsing(data), memory=_MEMORY + 4 * len(data), seconds=SECONDS)
    graph = parse_model(data).graph
    stored = {tensor.name for tensor in graph.initializer}
    shaped = shapes.read_declared_shapes(graph)
    return {value.name: shaped.get(value.name) for value in graph.input if value.name not in stored}


def _try_parsing(data: bytes) -> None:
    parse_model(data)


def _try_model(data: bytes, path: Path, inputs: Mapping[str, Input] | None) -> None:
    vet_model(data, path, inputs)


def _try_at(data: bytes, path: Path, inputs: Mapping[str, Input]) -> None:
    vetted = vet_model(data, path, inputs)
    window_fit.check_sizes(vetted.model.graph, vetted.shapes)


def vet_model(data: bytes, path: Path, inputs: Mapping[str, Input] | None) -> Vetted:
    """Check a model in this process; with None for `inputs`, open dimensions stay open."""
    model = parse_model(data)
    graph = model.graph
    check_operators.check_operators(graph)
    opset = check_operators.read_opset(model.opset_import)
    check_operators.check_definitions(graph, opset)
    check_operators.check_inputs(graph, opset)
    if not graph.node or not graph.output:
        raise ModelError(f"the graph has no {'outputs' if graph.node else 'nodes'}")
    for value in graph.output:
        if value.type.WhichOneof("value") not in {None, "tensor_type"}:
            raise ModelError(f"output {value.name!r} is not a tensor")
    _check_tensors(graph, data, path)
    lift_tensors(graph)
    weights = detach_weights(graph)
    _load_the_rest(graph, path)
    replace_known_branches(graph, opset)
    _drop_defaults(graph, weights)
    open_inputs = None if inputs is None else shapes.fix_inputs(graph, inputs)
    values = (
        shapes.list_unbound_inputs(graph)
        if open_inputs is None
        else shapes.bind_inputs(graph, open_inputs)
    )
    declare_weights(graph, weights)
    model.ir_version = max(model.ir_version, _IR_WITHOUT_WEIGHTS_AMONG_INPUTS)
    expand_operators.complete_attributes(graph)
    exporter_forms.give_scalars(model)
    inferred = shapes.infer_shapes(model)
    exporter_forms.name_types(graph, inferred.graph)
    shapes.check_types(inferred.graph)
    _check_reached(graph, values)
    memory.check_memory(inferred.graph, [value.name for value in values], weights)
    return Vetted(model, weights, values, shapes.read_static_shapes(inferred.graph), opset)


def parse_model(data: bytes) -> ModelProto:
    """Return the model that the bytes hold, its local functions inlined, in the usual form."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"{len(data)} bytes that are no ONNX model, or part of one") from error
    if not model.HasField("graph"):
        raise ModelError(f"{len(data)} bytes that are no ONNX model: there is no graph in it")
    check_operators.check_ir(model.ir_version)
    if model.functions:
        check_operators.check_functions(model)
    bounds.check_nodes(_count_inlined(model))
    if model.functions:
        model = _inline_functions(model)
    bounds.check_bodies(sum(1 for _ in tensors.list_graphs(model.graph)) - 1)
    exporter_forms.settle_form(model)
    return model


def _inline_functions(model: ModelProto) -> ModelProto:
    """Return a model with its local functions in the place of their calls.

    A function may name another opset than the model: ONNX wants its operators to be the same in
    both, and onnxruntime takes those of the model.
    """
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for function in model.functions:
        for entry in function.opset_import:
            entry.version = versions.get(entry.domain, entry.version)
    return inliner.inline_local_functions(model)


def _count_inlined(model: ModelProto) -> int:
    """Count the nodes of a model whose local functions are inlined.

    Refuses functions that end up calling themselves: inlining one never ends.
    """
    calls = {
        (function.domain, function.name): Counter(
            (node.domain, node.op_type) for node in tensors.list_nodes(function)
        )
        for function in model.functions
    }
    counts: dict[tuple[str, str], int] = {}
    while calls:
        leaves = [name for name, called in calls.items() if not called.keys() & calls.keys()]
        if not leaves:
            names = ", ".join(f"{domain}::{name}" for domain, name in sorted(calls))
            raise ModelError(f"local functions call each other in a circle: {names}")
        for name in leaves:
            counts[name] = sum(
                times * counts.get(called, 1) for called, times in calls.pop(name).items()
            )
    return sum(
        counts.get((node.domain, node.op_type), 1)
        for inner in tensors.list_graphs(model.graph)
        for node in inner.node
    )


def read_original(
    data: bytes, path: Path, inputs: Mapping[str, Input], weights: Iterable[str]
) -> ModelProto:
    """Return a model that passed as its author wrote it, but without its weights.

    Local functions, inner graphs and conditions are as they were; inputs that the pipeline gives a
    value have it.
    """
    model = onnx.ModelProto.FromString(data)
    graph, stored = model.graph, set(weights)
    for index, tensor in reversed(list(enumerate(graph.initializer))):
        if tensor.name in stored:
            del graph.initializer[index]
    for index, node in reversed(list(enumerate(graph.node))):
        if node.op_type == "Constant" and not stored.isdisjoint(node.output):
            del graph.node[index]
    _load_the_rest(graph, path)
    shapes.fix_inputs(graph, inputs)
    return model


def _check_tensors(graph: GraphProto, data: bytes, path: Path) -> None:
    known = source.list_locations(data)
    for tensor in tensors.list_tensors(graph):
        tensors.check_tensor(tensor, path)
        location = tensors.read_location(tensor)
        if location is not None and location not in known:
            # The cache key covers what `source.files` finds, so that must be all there is.
            raise ModelError(f"tensor {tensor.name!r} names external data in an unusual encoding")


def _load_the_rest(graph: GraphProto, path: Path) -> None:
    """Read what is no weight but stored like one: shape inference needs its values."""
    for tensor in tensors.list_tensors(graph):
        if tensors.read_location(tensor) is not None:
            tensor.CopyFrom(numpy_helper.from_array(tensors.read_array(tensor, path), tensor.name))


def _check_reached(graph: GraphProto, inputs: Iterable[Value]) -> None:
    """Refuse a graph that computes the same whatever it is given."""
    reached = {value.name for value in inputs}
    for node in graph.node:
        bodies = [body for each in node.attribute for body in (each.g, *each.graphs)]
        if not reached.isdisjoint(node.input) or any(
            reached & count_uses(body).keys() for body in bodies
        ):
            reached.update(node.output)
    if not any(value.name in reached for value in graph.output):
        raise ModelError("no output depends on an input: there is nothing to compile")


def _drop_defaults(graph: GraphProto, weights: Mapping[str, TensorProto]) -> None:
    """Drop the inputs that are tensors of the model, as files before format version 4 have them."""
    stored = {tensor.name for tensor in graph.initializer} | weights.keys()
    for index, value in reversed(list(enumerate(graph.input))):
        if value.name in stored:
            del graph.input[index]
