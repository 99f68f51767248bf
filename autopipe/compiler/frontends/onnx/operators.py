"""Which operators, domains and operator set versions can be imported."""

from collections import Counter
from collections.abc import Iterable

import onnx
from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

from autopipe.compiler.frontends.onnx.control.scopes import KINDS
from autopipe.compiler.frontends.onnx.converters import OURS
from autopipe.compiler.frontends.onnx.expand import BY_BODY, MICROSOFT_BY_BODY
from autopipe.compiler.frontends.onnx.quantized import EXPANDED
from autopipe.compiler.frontends.onnx.tensors import Proto, called, graphs
from autopipe.compiler.frontends.onnx.versions import FOLLOWED
from autopipe.errors import ModelError

MIN_OPSET = 7
"""Before it, Add and its like broadcast by attributes, which TVM ignores."""
MAX_OPSET = onnx.defs.onnx_opset_version()
"""The newest that the onnx library has schemas for; `versions` says which of them are followed."""
_AXES_FROM_THE_END = 11
MIN_IR = 3
"""What TVM requires."""

# TVM has one table for all domains. These entries are onnxruntime's operators, not ONNX's.
_MICROSOFT_ONLY = frozenset(
    {
        "Attention",
        "BiasGelu",
        "DynamicQuantizeLSTM",
        "EmbedLayerNormalization",
        "FastGelu",
        "MatMulInteger16",
        "SkipLayerNormalization",
    }
)
_MICROSOFT = (_MICROSOFT_ONLY | {"Gelu"} | MICROSOFT_BY_BODY) - {"MatMulInteger16"}
_RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
_HANDLED_DIRECTLY = EXPANDED | BY_BODY | KINDS | {"Constant"}
_DOMAINS = {"": "", "ai.onnx": "", "com.microsoft": "com.microsoft"}


def opset(imports: Iterable[Proto]) -> int:
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


def importable() -> frozenset[str]:
    """Return the operators of ONNX's own set that have a converter."""
    return frozenset(((_get_convert_map() | OURS).keys() - _MICROSOFT_ONLY) | _HANDLED_DIRECTLY)


def check(graph: Proto) -> None:
    """Refuse operators that can not be imported: all of them at once, each with its count."""
    known = importable()
    foreign: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    drawn: Counter[str] = Counter()
    for inner in graphs(graph):
        for node in inner.node:
            domain = _DOMAINS.get(node.domain)
            if domain is None:
                foreign[f"{node.domain}::{node.op_type} (node {node.name!r})"] += 1
            elif not domain and node.op_type in _RANDOM:
                drawn[node.op_type] += 1
            elif node.op_type not in (_MICROSOFT if domain else known):
                missing[f"{domain}::{node.op_type}" if domain else node.op_type] += 1
    if foreign:
        raise ModelError(f"operators of unknown domains: {_listed(foreign)}")
    if drawn:
        raise ModelError(f"operators whose results are drawn at random: {_listed(drawn)}")
    if missing:
        raise ModelError(f"operators that TVM can not import: {_listed(missing)}")


def check_functions(model: Proto) -> None:
    """Refuse calls of local functions named like operators: ONNX leaves open which is meant.

    A name that the operator set of the model does not have yet is the function's.
    """
    version = opset(model.opset_import)
    called = {
        (_DOMAINS.get(node.domain), node.op_type)
        for whole in (model.graph, *model.functions)
        for inner in graphs(whole)
        for node in inner.node
    }
    for function in model.functions:
        domain = _DOMAINS.get(function.domain)
        is_known = function.name in _MICROSOFT if domain else since_version(function.name, version)
        if domain is not None and is_known and (domain, function.name) in called:
            raise ModelError(
                f"local function {function.name!r} is named like an operator of domain "
                f"{function.domain!r}; runtimes differ in which of the two they take, so call the "
                "function by another name or domain"
            )


def check_definitions(graph: Proto, version: int) -> None:
    """Refuse operators that this opset defines in another way than their converters follow."""
    found: Counter[str] = Counter()
    for inner in graphs(graph):
        for name in (node.op_type for node in inner.node if _DOMAINS.get(node.domain) == ""):
            since = since_version(name, version)
            if since > FOLLOWED.get(name, since):
                found[f"{name} as opset {since} defines it"] += 1
        if version < _AXES_FROM_THE_END:
            _check_squeezed(inner)
    if found:
        raise ModelError(f"operators that can not be imported: {_listed(found)}")


def _check_squeezed(graph: Proto) -> None:
    """Refuse a Squeeze whose axes count from the end: shape inference leaves them in place."""
    for node in graph.node:
        axes = [axis for field in node.attribute if field.name == "axes" for axis in field.ints]
        if node.op_type == "Squeeze" and not node.domain and min(axes, default=0) < 0:
            raise ModelError(
                f"{called(node)} counts axes from the end, as it may since opset "
                f"{_AXES_FROM_THE_END}; convert the model (onnx.version_converter)"
            )


def since_version(name: str, opset: int) -> int:
    """Return the opset that brought the definition of an operator, 0 where ONNX has none."""
    if not onnx.defs.has(name, opset, ""):
        return 0
    return int(onnx.defs.get_schema(name, opset, "").since_version)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))
