"""Fold constant scales and shifts per channel into the preceding convolution.

A chain starts with a convolution of constant weights or a batch norm, and continues with batch
norms, and with products and sums with a constant scalar or a constant per channel:

    Conv, BatchNormalization, Mul by [8, 1, 1], Add of [8, 1, 1]    Conv
    BatchNormalization, Add of [8, 1, 1]                            Mul, Add
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from onnx import NodeProto, helper
from onnx.numpy_helper import to_array

from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.compiler.frontends.onnx.rewriting.simplify.graph_view import (
    STANDARD,
    GraphView,
    find_attribute,
    name_operand,
)

_MODES: Final = frozenset({"spatial", "training_mode"})  # 1 and 0 are inference


@dataclass(frozen=True)
class _Chain:
    """Nodes with their combined scale and shift per channel, in float64."""

    nodes: tuple[NodeProto, ...]
    rank: int
    scale: Array
    shift: Array


def fold_affine_chains(view: GraphView) -> bool:
    """Fold affine chains; a leading batch norm becomes Mul and Add. Returns whether there were any.

    A value with several readers ends a chain.
    """
    replacements: dict[str, list[NodeProto]] = {}
    for node in view.graph.node:
        chain = None if node.output[0] in replacements else _start_chain(view, node)
        if chain is None:
            continue
        while longer := _extend_chain(
            view, chain, view.find_only_reader(chain.nodes[-1].output[0])
        ):
            chain = longer
        nodes = _emit_chain(view, chain)
        if nodes is not None:
            replacements[node.output[0]] = nodes
            replacements.update((link.output[0], []) for link in chain.nodes[1:])
    if not replacements:
        return False
    view.replace_results(replacements)
    return True


def _start_chain(view: GraphView, node: NodeProto) -> _Chain | None:
    """Return the chain of one node, None if it cannot start a chain."""
    if node.domain not in STANDARD:
        return None
    if node.op_type in {"Conv", "ConvTranspose"} and view.is_stored(node.input[1:]):
        weights = view.stored[node.input[1]].dims
        channels = weights[0]
        if node.op_type == "ConvTranspose":
            channels = weights[1] * _read_groups(node)
        return _Chain((node,), len(weights), np.ones(channels), np.zeros(channels))
    rank = view.type_of(node.input[0]).rank if node.input else None
    norm = _read_norm(view, node)
    return None if norm is None or rank is None else _Chain((node,), rank, *norm)


def _extend_chain(view: GraphView, chain: _Chain, node: NodeProto | None) -> _Chain | None:
    """Append a node to a chain; None if it is not affine."""
    last = chain.nodes[-1].output[0]
    if node is None or node.domain not in STANDARD:
        return None
    if (norm := _read_norm(view, node)) is not None and node.input[0] == last:
        scale, shift = norm
        return _Chain(
            (*chain.nodes, node), chain.rank, chain.scale * scale, chain.shift * scale + shift
        )
    other_inputs = [name for name in node.input if name != last]
    if node.op_type not in {"Mul", "Add"} or len(other_inputs) != 1:
        return None
    values = view.find_constant(other_inputs[0])
    by_channel = (
        None if values is None else _read_channel_values(values, chain.scale.size, chain.rank)
    )
    if by_channel is None:
        return None
    nodes = (*chain.nodes, node)
    if node.op_type == "Mul":
        return _Chain(nodes, chain.rank, chain.scale * by_channel, chain.shift * by_channel)
    return _Chain(nodes, chain.rank, chain.scale, chain.shift + by_channel)


def _read_norm(view: GraphView, node: NodeProto) -> tuple[Array, Array] | None:
    """Return scale and shift of a constant batch norm; None for other nodes."""
    if node.op_type != "BatchNormalization" or any(node.output[1:]):
        return None
    is_inference = all(a.i == (a.name == "spatial") for a in node.attribute if a.name in _MODES)
    if not is_inference or not view.is_stored(node.input[1:]):
        return None
    gamma, beta, mean, variance = (_read_float64(view, name) for name in node.input[1:])
    epsilon = find_attribute(node, "epsilon")
    scale = gamma / np.sqrt(variance + (1e-5 if epsilon is None else epsilon.f))
    return scale, beta - mean * scale


def _read_channel_values(values: Array, channels: int, rank: int) -> Array | None:
    """Return a constant as one value per channel, None if it varies within one or adds axes."""
    if values.ndim > rank:
        return None
    full = values.reshape((1,) * (rank - values.ndim) + values.shape)
    if full.shape not in ((1, channels) + (1,) * (rank - 2), (1,) * rank):
        return None
    return full.reshape(-1).astype(np.float64)


def _emit_chain(view: GraphView, chain: _Chain) -> list[NodeProto] | None:
    """Return the replacement nodes of a chain, None if it stays."""
    if chain.nodes[0].op_type == "BatchNormalization":
        return _emit_scaled(view, chain)
    return None if len(chain.nodes) == 1 else _emit_convolution(view, chain)


def _emit_scaled(view: GraphView, chain: _Chain) -> list[NodeProto]:
    norm, last = chain.nodes[0], chain.nodes[-1]
    dtype = _read_dtype(view, norm.input[1])
    shape = (-1,) + (1,) * (chain.rank - 2)
    names = [
        view.store(
            np.broadcast_to(values, chain.scale.shape).reshape(shape).astype(dtype),
            f"{norm.output[0]}/{part}",
        )
        for part, values in (("scale", chain.scale), ("shift", chain.shift))
    ]
    product_name = f"{norm.output[0]}/scaled"
    return [
        helper.make_node("Mul", [norm.input[0], names[0]], [product_name], name=product_name),
        helper.make_node("Add", [product_name, names[1]], [last.output[0]], name=last.output[0]),
    ]


def _emit_convolution(view: GraphView, chain: _Chain) -> list[NodeProto] | None:
    """Return the convolution with folded weights; None if they are not finite."""
    node, last = chain.nodes[0], chain.nodes[-1]
    dtype = _read_dtype(view, node.input[1])
    weights, bias = _read_float64(view, node.input[1]), chain.shift
    if name_operand(node, 2):
        bias = bias + _read_float64(view, node.input[2]) * chain.scale
    by_weight = _reshape_to_weights(node, weights, chain.scale)
    with np.errstate(all="ignore"):
        values = [(weights * by_weight).astype(dtype), bias.astype(dtype)]
    if not all(np.isfinite(each).all() for each in values):
        return None
    names = [node.input[1], ""]
    if (chain.scale != 1).any():
        names[0] = view.store(values[0], f"{last.output[0]}/weight")
    names[1] = view.store(values[1], f"{last.output[0]}/bias")
    convolution = type(node).FromString(node.SerializeToString())
    convolution.input[:] = [node.input[0], *names]
    convolution.output[:] = last.output[:1]
    return [convolution]


def _reshape_to_weights(node: NodeProto, weights: Array, scale: Array) -> Array:
    """Reshape a vector of output channels to broadcast over the weights."""
    if node.op_type == "Conv":
        return scale.reshape(-1, *[1] * (weights.ndim - 1))
    groups = _read_groups(node)
    rows = np.repeat(scale.reshape(groups, -1), weights.shape[0] // groups, axis=0)
    return rows.reshape(*weights.shape[:2], *[1] * (weights.ndim - 2))


def _read_groups(node: NodeProto) -> int:
    group = find_attribute(node, "group")
    return 1 if group is None else int(group.i)


def _read_dtype(view: GraphView, name: str) -> "np.dtype[np.generic]":
    return helper.tensor_dtype_to_np_dtype(view.stored[name].data_type)


def _read_float64(view: GraphView, name: str) -> Array:
    return to_array(view.stored[name]).astype(np.float64)
