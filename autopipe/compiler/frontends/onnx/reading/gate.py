"""The gate: all checks of an untrusted model before it reaches TVM.

The checks run in a sandboxed child process first. This process then parses the same bytes and
infers the same shapes, so that it takes nothing from the child but whether they passed. If a model
has external data, it repeats the checks too, as those files may have changed meanwhile.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, TensorProto, inliner, numpy_helper

from autopipe.compiler.frontends import bounds
from autopipe.compiler.frontends.bounds import BOUNDS
from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.control.lift_tensors import lift_tensors
from autopipe.compiler.frontends.onnx.control.unroll import replace_known_branches
from autopipe.compiler.frontends.onnx.operators import find_operator
from autopipe.compiler.frontends.onnx.reading import (
    check_operators,
    exporter_forms,
    memory,
    shapes,
    tensors,
)
from autopipe.compiler.frontends.onnx.reading.tensors import count_uses
from autopipe.compiler.frontends.onnx.reading.weights import declare_weights, detach_weights
from autopipe.compiler.frontends.onnx.rewriting import expand_operators
from autopipe.compiler.step_counter import count_bytes
from autopipe.config.dimension import Dimension, format_sizes, list_probe_sizes
from autopipe.config.model import Input
from autopipe.errors import ModelError
from autopipe.formats.external_data import list_locations
from autopipe.processes.sandbox import run_in_sandbox

SECONDS = 60
"""Limit of the CPU time of a check in seconds; the wall time limit is twice this."""
_MEMORY = 2**30
_IR_WITHOUT_WEIGHTS_AMONG_INPUTS = 4


@dataclass(frozen=True)
class Vetted:
    """An admitted model: its graph, and its detached weights."""

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
    """Check the bytes of the model file at `path`, with inputs bound to the pipeline's shapes.

    Dynamic dimensions are checked at the ends of their ranges, near them and at specialized sizes.
    Raises `ModelError` for an unusable model, `ConfigError` if `inputs` do not match it.
    """
    # a static size of 0 would be rejected
    probes = [sizes for sizes in list_probe_sizes(dimensions) if 0 not in sizes.values()]
    report = count_bytes("MiB of the model checked", len(data), passes=2 + len(probes))
    _check_in_child(partial(vet_model, data, path, inputs), data)
    report(len(data))
    for sizes in probes:
        static_inputs = {name: given.at(sizes) for name, given in inputs.items()}
        try:
            _check_in_child(partial(_vet_sizes, data, path, static_inputs), data)
        except ModelError as error:
            advice = "another range, or a multiple, in model.dimensions may fit"
            raise ModelError(f"with {format_sizes(sizes)}: {error}; {advice}") from error
        report(len(data))
    return _read_vetted(data, path, inputs)


def sketch_model(data: bytes, path: Path) -> Vetted:
    """Check the bytes of a model with unbound dynamic dimensions, which count as 1.

    Operators that would be consistent at other sizes are not rejected. Raises `ModelError`.
    """
    _check_in_child(partial(vet_model, data, path, None), data)
    return _read_vetted(data, path, None)


def read_declared_shapes(data: bytes) -> dict[str, tuple[int | str | None, ...] | None]:
    """Return the declared shape of each input: sizes, symbols, None for an unnamed dimension.

    The shape is None for an input of unknown rank. Raises `ModelError` for invalid bytes.
    """
    _check_in_child(partial(parse_model, data), data)
    graph = parse_model(data).graph
    initializer_names = {tensor.name for tensor in graph.initializer}
    declared_shapes = shapes.read_declared_shapes(graph)
    return {
        value.name: declared_shapes.get(value.name)
        for value in graph.input
        if value.name not in initializer_names
    }


def _check_in_child(check: Callable[[], object], data: bytes) -> None:
    """Run a check of a model's bytes in a sandboxed child process, and drop its result."""

    def run() -> None:
        check()

    run_in_sandbox(run, memory=_MEMORY + 4 * len(data), seconds=SECONDS)


def _vet_sizes(data: bytes, path: Path, inputs: Mapping[str, Input]) -> None:
    check_sizes(vet_model(data, path, inputs))


def check_sizes(vetted_model: Vetted) -> None:
    """Raise ModelError for a window or a reflect pad that is larger than its static input."""
    graph = vetted_model.model.graph
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        operator = find_operator(node)
        if operator is not None and operator.check_sizes is not None:
            operator.check_sizes(node, vetted_model.shapes, initializers)


def vet_model(data: bytes, path: Path, inputs: Mapping[str, Input] | None) -> Vetted:
    """Check a model in this process; with None for `inputs`, dynamic dimensions stay unbound."""
    model = parse_model(data)
    _check_stored(model, data, path)
    vetted_model, inferred_model = _bind_model(model, path, inputs)
    names = [value.name for value in vetted_model.inputs]
    shapes.check_types(inferred_model.graph)
    _check_reached(model.graph, names)
    memory.check_memory(inferred_model.graph, names, vetted_model.weights)
    return vetted_model


def _read_vetted(data: bytes, path: Path, inputs: Mapping[str, Input] | None) -> Vetted:
    """Read a model whose bytes a child has vetted, and vet it again if it has external data."""
    if list_locations(data):
        return vet_model(data, path, inputs)
    return _bind_model(parse_model(data), path, inputs)[0]


def _check_stored(model: ModelProto, data: bytes, path: Path) -> None:
    """Check the operators, outputs and tensors of a model as they are in its file."""
    graph = model.graph
    check_operators.check_operators(graph)
    tensors.check_bodies(graph)
    opset = check_operators.read_opset(model.opset_import)
    check_operators.check_definitions(graph, opset)
    check_operators.check_inputs(graph, opset)
    if not graph.node or not graph.output:
        raise ModelError(f"the graph has no {'outputs' if graph.node else 'nodes'}")
    for value in graph.output:
        if value.type.WhichOneof("value") not in {None, "tensor_type"}:
            raise ModelError(f"output {value.name!r} is not a tensor")
    _check_tensors(graph, data, path)
    check_operators.check_counts(graph)


def _bind_model(
    model: ModelProto, path: Path, inputs: Mapping[str, Input] | None
) -> tuple[Vetted, ModelProto]:
    """Detach the weights of a model, bind its inputs and infer its shapes.

    Returns the model, and a copy of it with inferred types.
    """
    graph, opset = model.graph, check_operators.read_opset(model.opset_import)
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
    exporter_forms.settle_ranks(model)
    inferred_model = shapes.infer_shapes(model)
    exporter_forms.name_types(graph, inferred_model.graph)
    static_shapes = shapes.read_static_shapes(inferred_model.graph)
    return Vetted(model, weights, values, static_shapes, opset), inferred_model


def parse_model(data: bytes) -> ModelProto:
    """Parse a model, inline its local functions and normalize its form."""
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
    bounds.check_count(_count_inlined(model), BOUNDS.nodes, "nodes")
    if model.functions:
        model = _inline_functions(model)
    body_count = sum(1 for _ in tensors.list_graphs(model.graph)) - 1
    bounds.check_count(body_count, BOUNDS.bodies, "branches and bodies")
    exporter_forms.settle_form(model)
    return model


def _inline_functions(model: ModelProto) -> ModelProto:
    """Inline the local functions of a model.

    A function may import another opset than the model: ONNX requires that its operators are equal
    in both, and onnxruntime uses those of the model.
    """
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for function in model.functions:
        for entry in function.opset_import:
            entry.version = versions.get(entry.domain, entry.version)
    return inliner.inline_local_functions(model)


def _count_inlined(model: ModelProto) -> int:
    """Count the nodes of a model after inlining of its local functions.

    Raises ModelError for recursive functions.
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
    """Return an admitted model in its original form, without its weights.

    Local functions, inner graphs and conditions are unchanged; inputs with a value in the pipeline
    are initializers.
    """
    model = onnx.ModelProto.FromString(data)
    graph, weight_names = model.graph, set(weights)
    for index, tensor in reversed(list(enumerate(graph.initializer))):
        if tensor.name in weight_names:
            del graph.initializer[index]
    for index, node in reversed(list(enumerate(graph.node))):
        if node.op_type == "Constant" and not weight_names.isdisjoint(node.output):
            del graph.node[index]
    _load_the_rest(graph, path)
    shapes.fix_inputs(graph, inputs)
    return model


def _check_tensors(graph: GraphProto, data: bytes, path: Path) -> None:
    locations = list_locations(data)
    for tensor in tensors.list_tensors(graph):
        tensors.check_tensor(tensor, path)
        location = tensors.read_location(tensor)
        if location is not None and location not in locations:
            # The cache key covers the files of `external_data.list_files`: there must be no others.
            raise ModelError(f"tensor {tensor.name!r} names external data in an unusual encoding")


def _load_the_rest(graph: GraphProto, path: Path) -> None:
    """Load external data of tensors that are no weights: shape inference needs their values."""
    for tensor in tensors.list_tensors(graph):
        if tensors.read_location(tensor) is not None:
            tensor.CopyFrom(numpy_helper.from_array(tensors.read_array(tensor, path), tensor.name))


def _check_reached(graph: GraphProto, inputs: Iterable[str]) -> None:
    """Reject a graph without an output that depends on an input, by the names of its inputs."""
    reached_names = set(inputs)
    for node in graph.node:
        if not reached_names.isdisjoint(node.input) or any(
            reached_names & count_uses(body).keys() for body in tensors.list_bodies(node)
        ):
            reached_names.update(node.output)
    if not any(value.name in reached_names for value in graph.output):
        raise ModelError("no output depends on an input: there is nothing to compile")


def _drop_defaults(graph: GraphProto, weights: Mapping[str, TensorProto]) -> None:
    """Drop graph inputs that are initializers, as files before IR version 4 declare them."""
    names = {tensor.name for tensor in graph.initializer} | weights.keys()
    for index, value in reversed(list(enumerate(graph.input))):
        if value.name in names:
            del graph.input[index]
