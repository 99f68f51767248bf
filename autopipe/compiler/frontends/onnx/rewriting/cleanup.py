"""Rewrite an ONNX graph to the form that TVM imports well, by a list of passes."""

import logging
from collections.abc import Mapping
from typing import Final

from onnx import ModelProto
from onnx.numpy_helper import to_array

from autopipe.compiler.frontends.onnx.control.unroll import flatten_control_flow
from autopipe.compiler.frontends.onnx.reading import check_operators, shapes
from autopipe.compiler.frontends.onnx.reading.tensors import Array, count_uses
from autopipe.compiler.frontends.onnx.reading.weights import (
    attach_weights,
    declare_weights,
    detach_weights,
    undeclare_inputs,
)
from autopipe.compiler.frontends.onnx.recurrent.notes import note_shapes
from autopipe.compiler.frontends.onnx.rewriting import (
    attention_masks,
    constants,
    empty_tensors,
    quantized_products,
)
from autopipe.compiler.frontends.onnx.rewriting.expand_operators import expand_operators
from autopipe.compiler.frontends.onnx.rewriting.graph_rewrite import GraphRewrite, OnnxPass
from autopipe.compiler.frontends.onnx.rewriting.simplify.simplify import simplify_graph
from autopipe.compiler.pass_observer import observe_pass
from autopipe.compiler.step_counter import count_each

_LOG: Final = logging.getLogger(__name__)


def _expand_operators(rewrite: GraphRewrite) -> None:
    rewrite.model.CopyFrom(rewrite.source)
    _expand_known_operators(rewrite, is_folded=False)


def _expand_folded_operators(rewrite: GraphRewrite) -> None:
    if _expand_known_operators(rewrite, is_folded=True):
        _simplify_repeatedly(rewrite)


def _expand_known_operators(rewrite: GraphRewrite, *, is_folded: bool) -> bool:
    """Expand the operators whose bodies can be written; return whether there are any."""
    expanded_model = expand_operators(rewrite.model, is_folded=is_folded)
    if expanded_model is rewrite.model:
        return False
    rewrite.model, rewrite.is_expanded = expanded_model, True
    check_operators.check_operators(expanded_model.graph)
    return True


def _fold_empty_tensors(rewrite: GraphRewrite) -> None:
    empty_tensors.fold_empty_tensors(rewrite.model)


def _attach_weights(rewrite: GraphRewrite) -> None:
    large = rewrite.large
    small = {name: array for name, array in rewrite.weights.items() if name not in large}
    attach_weights(rewrite.model.graph, small)


def _fuse_quantized(rewrite: GraphRewrite) -> None:
    quantized_products.fuse_quantized(rewrite.model.graph)


def _clear_output_shapes(rewrite: GraphRewrite) -> None:
    for value in rewrite.model.graph.output:
        value.type.tensor_type.ClearField("shape")


def _simplify_repeatedly(rewrite: GraphRewrite) -> None:
    model = rewrite.model
    before, left = -1, note_shapes(model)
    simplify_graph(model)
    while left and left != before:  # while it resolves shapes of more recurrent layers
        before, left = left, note_shapes(model)
        simplify_graph(model)


def _flatten_control_flow(rewrite: GraphRewrite) -> None:
    rewrite.model = flatten_control_flow(rewrite.model, simplify_graph)


def _restore_outputs(rewrite: GraphRewrite) -> None:
    pairs = zip(rewrite.model.graph.output, rewrite.source.graph.output, strict=True)
    for value, source_value in pairs:
        value.CopyFrom(source_value)


def _rewrite_masks(rewrite: GraphRewrite) -> None:
    attention_masks.rewrite_mask_tests(rewrite.model.graph)


def _store_shapes(rewrite: GraphRewrite) -> None:
    graph = rewrite.model.graph
    constants.store_shapes(graph, shapes.read_static_shapes(graph))


def _drop_empty_masks(rewrite: GraphRewrite) -> None:
    if rewrite.is_expanded:
        attention_masks.drop_empty(rewrite.model.graph)


def _detach_weights(rewrite: GraphRewrite) -> None:
    graph, large = rewrite.model.graph, rewrite.large
    folded_weights = detach_weights(graph)
    uses = count_uses(graph)
    undeclare_inputs(graph, {name for name in large if not uses[name]})
    kept_weights = {each.name: large[each.name] for each in graph.input if each.name in large}
    declare_weights(graph, folded_weights)
    rewrite.kept_weights = kept_weights | {
        name: to_array(tensor) for name, tensor in folded_weights.items()
    }


CLEANUP: Final[tuple[OnnxPass, ...]] = (
    OnnxPass(_expand_operators, "ONNX's own body takes the place of an operator without converter"),
    OnnxPass(_fold_empty_tensors, "a tensor without elements is a constant"),
    OnnxPass(_attach_weights, "what is computed of weights can be folded"),
    OnnxPass(
        _fuse_quantized,
        "quantized operators compute with integers, not with floats",
        quantized_products.REWRITTEN,
    ),
    OnnxPass(_clear_output_shapes, "the shapes that a file declares may be wrong"),
    OnnxPass(_simplify_repeatedly, "constants are folded, and nodes that do nothing are dropped"),
    OnnxPass(_expand_folded_operators, "sizes that decide an operator's body are known by now"),
    OnnxPass(_flatten_control_flow, "known branches are taken, and short loops unrolled"),
    OnnxPass(_restore_outputs, "outputs have the types that the file declares"),
    OnnxPass(_rewrite_masks, "TVM's maximum of minus infinities is the lowest finite number"),
    OnnxPass(_store_shapes, "TVM returns no shapes, so a known one is a constant"),
    OnnxPass(_drop_empty_masks, "bodies of operators choose by masks that are never true"),
    OnnxPass(_detach_weights, "weights are inputs of the graph, with their values kept outside"),
    OnnxPass(_fold_empty_tensors, "shapes that were computed are known by now"),
)
"""The passes over the ONNX graph, in order."""


def clean_model(
    model: ModelProto, weights: Mapping[str, Array]
) -> tuple[ModelProto, dict[str, Array]]:
    """Simplify a model; returns (simplified model, weights, which are inputs of its graph).

    Constants are folded, batch norm is folded into the preceding convolution or becomes one scale
    and one shift, and no-ops of inference are dropped. The original is not changed.
    """
    rewrite = GraphRewrite(model, weights)
    for graph_pass in count_each("clean-up passes run", CLEANUP, is_even=False):
        nodes = rewrite.model.graph.node
        if graph_pass.rewrites and graph_pass.rewrites.isdisjoint(node.op_type for node in nodes):
            continue
        before = len(nodes)
        with observe_pass(graph_pass.name, rewrite.print_graph):
            graph_pass.apply(rewrite)
        _LOG.debug(
            "pass %s: %d nodes, then %d", graph_pass.name, before, len(rewrite.model.graph.node)
        )
    return rewrite.model, rewrite.kept_weights
