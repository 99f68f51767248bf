"""Batch norm that has no convolution to go into, as one multiplication and one addition."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import helper, numpy_helper

from autopipe.compiler.frontends.onnx.tensors import Array, Proto, uses

_MODES = frozenset({"spatial", "training_mode"})  # 1 and 0 mean inference, one value a channel


@dataclass(frozen=True)
class _Affine:
    """What a chain of nodes does to each channel: x * scale + shift, in float64."""

    nodes: tuple[Proto, ...]
    scale: Array
    shift: Array


def fuse(graph: Proto, ranks: Mapping[str, int]) -> None:
    """Turn each BatchNormalization, and constant Mul and Add after it, into one Mul and one Add.

    `ranks` are those of the values; a norm of unknown rank stays as it is.
    """
    stored = {tensor.name: tensor for tensor in graph.initializer}
    readers = uses(graph)
    reader = {name: node for node in graph.node for name in node.input}
    chains = {}
    for node in graph.node:
        if _is_constant_norm(node, stored) and node.input[0] in ranks:
            rank = ranks[node.input[0]]
            chain = _of_norm(node, stored)
            while readers[chain.nodes[-1].output[0]] == 1:
                longer = _extended(chain, reader.get(chain.nodes[-1].output[0]), stored, rank)
                if longer is None:
                    break
                chain = longer
            chains[node.output[0]] = _emitted(graph, chain, rank)
            chains.update({link.output[0]: [] for link in chain.nodes[1:]})
    if chains:
        nodes = [new for node in graph.node for new in chains.get(node.output[0], [node])]
        kept = type(graph)()
        kept.node.extend(nodes)
        del graph.node[:]
        graph.node.extend(kept.node)
        _drop_unused(graph)


def _is_constant_norm(node: Proto, stored: Mapping[str, Proto]) -> bool:
    if node.op_type != "BatchNormalization" or any(node.output[1:]):
        return False
    whole = all(a.i == (a.name == "spatial") for a in node.attribute if a.name in _MODES)
    return whole and all(name in stored for name in node.input[1:])


def _of_norm(node: Proto, stored: Mapping[str, Proto]) -> _Affine:
    gamma, beta, mean, variance = (_values(stored[name]) for name in node.input[1:])
    epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
    scale = gamma / np.sqrt(variance + epsilon)
    return _Affine((node,), scale, beta - mean * scale)


def _extended(
    chain: _Affine, node: Proto | None, stored: Mapping[str, Proto], rank: int
) -> _Affine | None:
    """Return the chain with one more Mul or Add, None if the node is not one by a constant."""
    if node is None or node.op_type not in ("Mul", "Add"):
        return None
    others = [name for name in node.input if name != chain.nodes[-1].output[0]]
    if len(others) != 1 or others[0] not in stored:
        return None
    operand = _per_channel(_values(stored[others[0]]), chain.scale.size, rank)
    if operand is None:
        return None
    nodes = (*chain.nodes, node)
    if node.op_type == "Mul":
        return _Affine(nodes, chain.scale * operand, chain.shift * operand)
    return _Affine(nodes, chain.scale, chain.shift + operand)


def _per_channel(values: Array, channels: int, rank: int) -> Array | None:
    """Return a constant as one value a channel, None if it differs within one or adds axes."""
    if values.ndim > rank:
        return None
    full = values.reshape((1,) * (rank - values.ndim) + values.shape)
    if full.shape not in ((1, channels) + (1,) * (rank - 2), (1,) * rank):
        return None
    return full.reshape(-1)


def _emitted(graph: Proto, chain: _Affine, rank: int) -> list[Proto]:
    """Return the two nodes a chain becomes, their constants added to the graph."""
    norm, last = chain.nodes[0], chain.nodes[-1]
    dtype = numpy_helper.to_array(
        next(tensor for tensor in graph.initializer if tensor.name == norm.input[1])
    ).dtype
    names = [f"{norm.output[0]}/{part}" for part in ("scale", "shift", "scaled")]
    for name, values in zip(names, (chain.scale, chain.shift), strict=False):
        shaped = np.broadcast_to(values, chain.scale.shape).reshape((-1,) + (1,) * (rank - 2))
        graph.initializer.append(numpy_helper.from_array(shaped.astype(dtype), name))
    return [
        helper.make_node("Mul", [norm.input[0], names[0]], [names[2]], name=names[2]),
        helper.make_node("Add", [names[2], names[1]], [last.output[0]], name=last.output[0]),
    ]


def _drop_unused(graph: Proto) -> None:
    used = uses(graph)
    for index, tensor in reversed(list(enumerate(graph.initializer))):
        if tensor.name not in used:
            del graph.initializer[index]


def _values(tensor: Proto) -> Array:
    return np.asarray(numpy_helper.to_array(tensor), dtype=np.float64)
