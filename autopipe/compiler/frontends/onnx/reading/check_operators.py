"""Which operators, domains and operator set versions can be imported."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import zip_longest

import onnx
from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto

from autopipe.compiler.frontends.onnx.operator import MICROSOFT, ONNX
from autopipe.compiler.frontends.onnx.operators import OPERATORS, find_operator
from autopipe.compiler.frontends.onnx.reading.tensors import describe_node, list_graphs, list_nodes
from autopipe.errors import ModelError

MIN_OPSET = 7
"""Before it, Add and its like broadcast by attributes, which TVM ignores."""
MAX_OPSET = onnx.defs.onnx_opset_version()
"""The newest that the onnx library has schemas for; `Operator.since` says what is followed."""
_AXES_FROM_THE_END = 11
MIN_IR = 3
"""What TVM requires."""

_OPTION = onnx.defs.OpSchema.FormalParameterOption
_DOMAINS = {"": "", "ai.onnx": "", "com.microsoft": "com.microsoft"}


def read_opset(imports: Iterable[OperatorSetIdProto]) -> int:
    """Return the version of the ONNX operator set that a model asks for."""
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
    """Refuse a version of the ONNX file format that TVM or the onnx library does not know."""
    if not MIN_IR <= version <= onnx.IR_VERSION:
        raise ModelError(
            f"ONNX format version {version} is not supported; "
            f"it must be one of {MIN_IR} to {onnx.IR_VERSION}"
        )


def check_operators(graph: GraphProto) -> None:
    """Refuse operators that can not be imported: all of them at once, each with its count."""
    foreign: Counter[str] = Counter()
    refused: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for inner in list_graphs(graph):
        for node in inner.node:
            domain, operator = _DOMAINS.get(node.domain), find_operator(node)
            if domain is None:
                foreign[f"{node.domain}::{node.op_type} (node {node.name!r})"] += 1
            elif operator is None or not operator.is_importable:
                why = "that can not be imported" if operator is None else operator.refusal
                refused[why][f"{domain}::{node.op_type}" if domain else node.op_type] += 1
    if foreign:
        raise ModelError(f"operators of unknown domains: {_list_counts(foreign)}")
    if refused:
        told = (f"operators {why}: {_list_counts(names)}" for why, names in sorted(refused.items()))
        raise ModelError("; ".join(told))


def check_functions(model: ModelProto) -> None:
    """Refuse calls of local functions named like operators: ONNX leaves open which is meant.

    A name that the operator set of the model does not have yet is the function's.
    """
    version = read_opset(model.opset_import)
    wholes: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    called = {
        (_DOMAINS.get(node.domain), node.op_type) for whole in wholes for node in list_nodes(whole)
    }
    for function in model.functions:
        domain = _DOMAINS.get(function.domain)
        is_known = (
            (MICROSOFT, function.name) in OPERATORS
            if domain
            else find_since_version(function.name, version)
        )
        if domain is not None and is_known and (domain, function.name) in called:
            raise ModelError(
                f"local function {function.name!r} is named like an operator of domain "
                f"{function.domain!r}; runtimes differ in which of the two they take, so call the "
                "function by another name or domain"
            )


def check_definitions(graph: GraphProto, version: int) -> None:
    """Refuse operators that this opset defines in another way than their converters follow."""
    found: Counter[str] = Counter()
    for inner in list_graphs(graph):
        for node in inner.node:
            operator = find_operator(node)
            if operator is None or operator.domain != ONNX:
                continue
            since = find_since_version(operator.name, version)
            if since > operator.since:
                found[f"{operator.name} as opset {since} defines it"] += 1
        if version < _AXES_FROM_THE_END:
            _check_squeezed(inner)
    if found:
        raise ModelError(f"operators that can not be imported: {_list_counts(found)}")


def check_inputs(graph: GraphProto, version: int) -> None:
    """Refuse a node without an input that its operator needs."""
    for node in list_nodes(graph):
        for place, name in enumerate(_list_inputs(node, version)):
            if name and not any(node.input[place : place + 1]):
                raise ModelError(f"{describe_node(node)} is not given its input {name!r}")


def _list_inputs(node: NodeProto, version: int) -> Sequence[str]:
    """Return the names of the inputs that a node has to have, empty between them for others."""
    operator = find_operator(node)
    if operator is None:
        return ()
    if operator.domain != ONNX:
        return operator.inputs
    names, is_repeated = _list_schema_inputs(operator.name, version)
    return names + names[-1:] * (len(node.input) - len(names)) if is_repeated else names


@cache  # a schema hands out new objects each time, and models have thousands of nodes
def _list_schema_inputs(name: str, version: int) -> tuple[tuple[str, ...], bool]:
    """Return the inputs that an operator of ONNX needs, and whether the last one is repeated.

    Resize was defined with inputs that files leave out all the same; later it allowed that. So an
    input is required if the newest definition requires it, too.
    """
    schemas = [onnx.defs.get_schema(name, opset, "") for opset in (version, MAX_OPSET)]
    used, newest = ([_is_required(given) for given in schema.inputs] for schema in schemas)
    pairs = zip_longest(used, newest[: len(used)], fillvalue=True)
    names = tuple(
        given.name if all(pair) else ""
        for given, pair in zip(schemas[0].inputs, pairs, strict=True)
    )
    return names, any(given.option == _OPTION.Variadic for given in schemas[0].inputs[-1:])


def _is_required(given: onnx.defs.OpSchema.FormalParameter) -> bool:
    """Tell whether an input may not be left out; a repeated one has to be there once."""
    if given.option == _OPTION.Variadic:
        return bool(given.min_arity)
    return bool(given.option == _OPTION.Single)


def _check_squeezed(graph: GraphProto) -> None:
    """Refuse a Squeeze whose axes count from the end: shape inference leaves them in place."""
    for node in graph.node:
        axes = [axis for field in node.attribute if field.name == "axes" for axis in field.ints]
        if node.op_type == "Squeeze" and not node.domain and min(axes, default=0) < 0:
            raise ModelError(
                f"{describe_node(node)} counts axes from the end, as it may since opset "
                f"{_AXES_FROM_THE_END}; convert the model (onnx.version_converter)"
            )


def find_since_version(name: str, opset: int) -> int:
    """Return the opset that brought the definition of an operator, 0 where ONNX has none."""
    if not onnx.defs.has(name, opset, ""):
        return 0
    return int(onnx.defs.get_schema(name, opset, "").since_version)


def _list_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))
