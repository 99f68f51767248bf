"""All ONNX operators: one file for each or for a close family, and one line here."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from onnx import NodeProto

from autopipe.compiler.frontends.onnx.operator import ONNX, Operator, Trait
from autopipe.compiler.frontends.onnx.operators import (
    arg_max,
    arithmetic,
    attention,
    batch_normalization,
    bitwise,
    cast,
    clip,
    col2im,
    comparison,
    compress,
    concat,
    constant,
    constant_of_shape,
    control_flow,
    conv,
    conv_transpose,
    cumulative,
    deform_conv,
    depth_to_space,
    det,
    division,
    dropout,
    einsum,
    elu,
    expand,
    exponential,
    eye_like,
    fused_matmul,
    gather,
    gelu,
    grid_sample,
    group_normalization,
    identity,
    integer_product,
    is_nan,
    layer_normalization,
    loss,
    lp_normalization,
    matmul,
    matmul_n_bits,
    non_max_suppression,
    non_zero,
    one_hot,
    optional,
    pad,
    pooling,
    power,
    qlinear,
    quantize_linear,
    random,
    ranges,
    recurrent,
    reduction,
    relu,
    reshape,
    resize,
    reverse_sequence,
    roi,
    rounding,
    scatter,
    sequence,
    shape,
    sigmoid,
    sign,
    slicing,
    softmax,
    softplus,
    spectrum,
    split,
    squeeze,
    text,
    tile,
    topk,
    transpose,
    trigonometry,
    trilu,
    unique,
    variadic,
    where,
)

_FAMILIES: Final = (
    arg_max.OPERATORS,
    arithmetic.OPERATORS,
    attention.OPERATORS,
    batch_normalization.OPERATORS,
    bitwise.OPERATORS,
    cast.OPERATORS,
    clip.OPERATORS,
    col2im.OPERATORS,
    comparison.OPERATORS,
    compress.OPERATORS,
    concat.OPERATORS,
    constant.OPERATORS,
    constant_of_shape.OPERATORS,
    control_flow.OPERATORS,
    conv.OPERATORS,
    conv_transpose.OPERATORS,
    cumulative.OPERATORS,
    deform_conv.OPERATORS,
    depth_to_space.OPERATORS,
    det.OPERATORS,
    division.OPERATORS,
    dropout.OPERATORS,
    einsum.OPERATORS,
    elu.OPERATORS,
    expand.OPERATORS,
    exponential.OPERATORS,
    eye_like.OPERATORS,
    fused_matmul.OPERATORS,
    gather.OPERATORS,
    gelu.OPERATORS,
    grid_sample.OPERATORS,
    group_normalization.OPERATORS,
    identity.OPERATORS,
    integer_product.OPERATORS,
    is_nan.OPERATORS,
    layer_normalization.OPERATORS,
    loss.OPERATORS,
    lp_normalization.OPERATORS,
    matmul.OPERATORS,
    matmul_n_bits.OPERATORS,
    non_max_suppression.OPERATORS,
    non_zero.OPERATORS,
    one_hot.OPERATORS,
    optional.OPERATORS,
    pad.OPERATORS,
    pooling.OPERATORS,
    power.OPERATORS,
    qlinear.OPERATORS,
    quantize_linear.OPERATORS,
    random.OPERATORS,
    ranges.OPERATORS,
    recurrent.OPERATORS,
    reduction.OPERATORS,
    relu.OPERATORS,
    reshape.OPERATORS,
    resize.OPERATORS,
    reverse_sequence.OPERATORS,
    roi.OPERATORS,
    rounding.OPERATORS,
    scatter.OPERATORS,
    sequence.OPERATORS,
    shape.OPERATORS,
    sigmoid.OPERATORS,
    sign.OPERATORS,
    slicing.OPERATORS,
    softmax.OPERATORS,
    softplus.OPERATORS,
    spectrum.OPERATORS,
    split.OPERATORS,
    squeeze.OPERATORS,
    text.OPERATORS,
    tile.OPERATORS,
    topk.OPERATORS,
    transpose.OPERATORS,
    trigonometry.OPERATORS,
    trilu.OPERATORS,
    unique.OPERATORS,
    variadic.OPERATORS,
    where.OPERATORS,
)

OPERATORS: Final[Mapping[tuple[str, str], Operator]] = {
    (operator.domain, operator.name): operator for operator in chain.from_iterable(_FAMILIES)
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
