"""Check operators, domains and opset versions against those that can be imported."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import zip_longest

import onnx
from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, numpy_helper

from autopipe.compiler.frontends.onnx.operator import MICROSOFT, ONNX
from autopipe.compiler.frontends.onnx.operators import OPERATORS, find_operator
from autopipe.compiler.frontends.onnx.reading.tensors import (
    describe_node,
    list_graphs,
    list_nodes,
    read_location,
    read_stored,
)
from autopipe.compiler.frontends.onnx.reading.value_types import check_count
from autopipe.errors import ModelError

MIN_OPSET = 7
"""Earlier opsets broadcast Add and its relatives by attributes, which TVM ignores."""
MAX_OPSET = onnx.defs.onnx_opset_version()
"""The newest opset in the onnx library; `Operator.since` is the newest supported definition."""
_AXES_FROM_THE_END = 11
MIN_IR = 3
"""The minimum IR version of TVM."""

_COUNTING = frozenset(operator.name for operator in OPERATORS.values() if operator.counts)
_OPTION = onnx.defs.OpSchema.FormalParameterOption
_DOMAINS = {"": "", "ai.onnx": "", "com.microsoft": "com.microsoft"}


def read_opset(imports: Iterable[OperatorSetIdProto]) -> int:
    """Return the opset version of a model."""
    versions = {entry.version for entry in imports if _DOMAINS.get(entry.domain) == ""}
    if len(versions) != 1:
        raise ModelError("the model must import exactly one version of the ONNX operator set")
    version = int(versions.pop())
    if not MIN_OPSET <= version <= MAX_OPSET:
        raise ModelError(
            f"opset {version} is not supported; convert the model to one of "
            f"{MIN_OPSET} to {MAX_OPSET} (onnx.version_converter)"
        )
    return version


def check_ir(version: int) -> None:
    """Reject an IR version that TVM or the onnx library does not support."""
    if not MIN_IR <= version <= onnx.IR_VERSION:
        raise ModelError(
            f"ONNX format version {version} is not supported; "
            f"it must be one of {MIN_IR} to {onnx.IR_VERSION}"
        )


def check_operators(graph: GraphProto) -> None:
    """Reject operators that cannot be imported, in one message with the count of each."""
    foreign: Counter[str] = Counter()
    refusals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for inner in list_graphs(graph):
        for node in inner.node:
            domain, operator = _DOMAINS.get(node.domain), find_operator(node)
            if domain is None:
                foreign[f"{node.domain}::{node.op_type} (node {node.name!r})"] += 1
            elif operator is None or not operator.is_importable:
                why = "that cannot be imported" if operator is None else operator.refusal
                refusals[why][f"{domain}::{node.op_type}" if domain else node.op_type] += 1
    if foreign:
        raise ModelError(f"operators of unknown domains: {_list_counts(foreign)}")
    if refusals:
        messages = (
            f"operators {why}: {_list_counts(names)}" for why, names in sorted(refusals.items())
        )
        raise ModelError("; ".join(messages))


def check_functions(model: ModelProto) -> None:
    """Reject calls of local functions named like operators, which ONNX leaves ambiguous.

    A name that the model's opset does not have yet is the function's.
    """
    version = read_opset(model.opset_import)
    scopes: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    called_names = {
        (_DOMAINS.get(node.domain), node.op_type) for whole in scopes for node in list_nodes(whole)
    }
    for function in model.functions:
        domain = _DOMAINS.get(function.domain)
        is_known = (
            (MICROSOFT, function.name) in OPERATORS
            if domain
            else find_since_version(function.name, version)
        )
        if domain is not None and is_known and (domain, function.name) in called_names:
            raise ModelError(
                f"local function {function.name!r} is named like an operator of domain "
                f"{function.domain!r}; runtimes differ in which of the two they take, so call the "
                "function by another name or domain"
            )


def check_definitions(graph: GraphProto, version: int) -> None:
    """Reject operators with a definition in this opset that is newer than their converters."""
    counts: Counter[str] = Counter()
    for inner in list_graphs(graph):
        for node in inner.node:
            operator = find_operator(node)
            if operator is None or operator.domain != ONNX:
                continue
            since = find_since_version(operator.name, version)
            if since > operator.since:
                counts[f"{operator.name} as opset {since} defines it"] += 1
        if version < _AXES_FROM_THE_END:
            _check_squeezed(inner)
    if counts:
        raise ModelError(f"operators that cannot be imported: {_list_counts(counts)}")


def check_inputs(graph: GraphProto, version: int) -> None:
    """Reject a node without a required input."""
    for node in list_nodes(graph):
        for place, name in enumerate(_list_inputs(node, version)):
            if name and not any(node.input[place : place + 1]):
                raise ModelError(f"{describe_node(node)} is not given its input {name!r}")


def check_counts(graph: GraphProto) -> None:
    """Reject a constant below 1 where an operator counts from 1 on, such as a step of 0.

    onnx infers sizes below 0 for it, and names neither the node nor the number.
    """
    for inner in list_graphs(graph):
        nodes = [node for node in inner.node if node.op_type in _COUNTING]
        stored = {**read_stored(graph), **read_stored(inner)} if nodes else {}
        for node in nodes:
            operator = find_operator(node)
            for place, label in operator.counts.items() if operator else ():
                for name in node.input[place : place + 1]:
                    tensor = stored.get(name)
                    if tensor is not None and read_location(tensor) is None:
                        number = numpy_helper.to_array(tensor)
                        check_count(int(number.min(initial=1)), f"{label} of {describe_node(node)}")


def _list_inputs(node: NodeProto, version: int) -> Sequence[str]:
    """Return the names of required inputs by index, empty for optional ones."""
    operator = find_operator(node)
    if operator is None:
        return ()
    if operator.domain != ONNX:
        return operator.inputs
    names, is_repeated = _list_schema_inputs(operator.name, version)
    return names + names[-1:] * (len(node.input) - len(names)) if is_repeated else names


@cache  # a schema creates new objects for each access, and models have thousands of nodes
def _list_schema_inputs(name: str, version: int) -> tuple[tuple[str, ...], bool]:
    """Return the required inputs of an ONNX operator, and whether the last input is variadic.

    Early opsets of Resize require inputs that files omit, which later opsets allow. So an input is
    required only if the newest definition requires it, too.
    """
    schemas = [onnx.defs.get_schema(name, opset, "") for opset in (version, MAX_OPSET)]
    used_flags, newest_flags = (
        [_is_required(given) for given in schema.inputs] for schema in schemas
    )
    pairs = zip_longest(used_flags, newest_flags[: len(used_flags)], fillvalue=True)
    names = tuple(
        given.name if all(pair) else ""
        for given, pair in zip(schemas[0].inputs, pairs, strict=True)
    )
    return names, any(given.option == _OPTION.Variadic for given in schemas[0].inputs[-1:])


def _is_required(parameter: onnx.defs.OpSchema.FormalParameter) -> bool:
    """Whether an input is required; a variadic input if its minimum arity is above 0."""
    if parameter.option == _OPTION.Variadic:
        return bool(parameter.min_arity)
    return bool(parameter.option == _OPTION.Single)


def _check_squeezed(graph: GraphProto) -> None:
    """Reject a Squeeze with negative axes before opset 11: shape inference ignores them."""
    for node in graph.node:
        axes = [axis for field in node.attribute if field.name == "axes" for axis in field.ints]
        if node.op_type == "Squeeze" and not node.domain and min(axes, default=0) < 0:
            raise ModelError(
                f"{describe_node(node)} counts axes from the end, as it may since opset "
                f"{_AXES_FROM_THE_END}; convert the model (onnx.version_converter)"
            )


def find_since_version(name: str, opset: int) -> int:
    """Return the opset of an operator's definition, 0 if ONNX has none."""
    if not onnx.defs.has(name, opset, ""):
        return 0
    return int(onnx.defs.get_schema(name, opset, "").since_version)


def _list_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))
