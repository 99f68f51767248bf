"""All ONNX operators: one file for each or for a close family, and one line here."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from onnx import NodeProto

from autopipe.compiler.frontends.onnx.operator import ONNX, Operator, Trait

_FAMILIES: Final = (
    "activation",
    "arithmetic",
    "bitwise",
    "cast",
    "clip",
    "comparison",
    "concat",
    "constant",
    "control_flow",
    "conv",
    "depth_to_space",
    "det",
    "elementwise",
    "expand",
    "gather",
    "identity",
    "integer_product",
    "matmul",
    "matmul_n_bits",
    "non_max_suppression",
    "non_zero",
    "normalization",
    "one_hot",
    "onnx_body",
    "pad",
    "pooling",
    "qlinear",
    "quantize_linear",
    "recurrent",
    "reduction",
    "refused",
    "reshape",
    "resize",
    "reverse_sequence",
    "sampling",
    "scatter",
    "sequence",
    "slicing",
    "softmax",
    "spectrum",
    "topk",
    "trilu",
    "unique",
)

OPERATORS: Final[Mapping[tuple[str, str], Operator]] = {
    (operator.domain, operator.name): operator
    for family in _FAMILIES
    for operator in import_module(f"{__name__}.{family}").OPERATORS
}
"""All operators, by domain and name."""

_DOMAINS: Final = {"ai.onnx": ONNX}
"""Aliases of domains."""


def find_operator(node: NodeProto) -> Operator | None:
    """Return the record of a node's operator, or None if the operator is not described."""
    return OPERATORS.get((_DOMAINS.get(node.domain, node.domain), node.op_type))


def has_trait(node: NodeProto, traits: Trait) -> bool:
    """Whether the operator of a node has one of these traits."""
    operator = find_operator(node)
    return operator is not None and operator.has(traits)


def list_steering_inputs(node: NodeProto) -> list[str]:
    """Return the names of a node's parameter inputs, which have to be constants of the graph."""
    operator = find_operator(node)
    return list_named_inputs(node, () if operator is None else operator.steering)


def list_named_inputs(node: NodeProto, places: Sequence[int]) -> list[str]:
    """Return the names of the present inputs at the given indices."""
    return [node.input[at] for at in places if at < len(node.input)]
