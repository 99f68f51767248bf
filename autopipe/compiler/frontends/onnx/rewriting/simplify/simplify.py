"""Simplify an ONNX graph by a fixed list of rewrites, each proved for every input.

All but the folding of scales into convolutions are exact: constant folding evaluates nodes by the
reference implementation of onnx, and the others remove no-ops and merge data movement. Folding a
scale into weights rounds the product of the two instead of the result.
"""

import logging
from collections.abc import Callable
from typing import Final

from onnx import ModelProto

from autopipe.compiler.frontends.onnx.reading import check_operators
from autopipe.compiler.frontends.onnx.reading.inference import note_types
from autopipe.compiler.frontends.onnx.reading.tensors import name_nodes
from autopipe.compiler.frontends.onnx.rewriting.simplify.fold_affine import fold_affine_chains
from autopipe.compiler.frontends.onnx.rewriting.simplify.fold_constants import (
    fold_constants,
    store_constants,
)
from autopipe.compiler.frontends.onnx.rewriting.simplify.graph_view import GraphView, drop_dead
from autopipe.compiler.frontends.onnx.rewriting.simplify.merge_duplicates import merge_duplicates
from autopipe.compiler.frontends.onnx.rewriting.simplify.merge_movements import merge_movements
from autopipe.compiler.frontends.onnx.rewriting.simplify.remove_no_ops import remove_no_ops

REWRITES: Final[tuple[Callable[[GraphView], bool], ...]] = (
    remove_no_ops,
    merge_duplicates,  # so that the next evaluates equal nodes once
    fold_constants,
    merge_movements,  # needs the constant inputs of Reshape and Pad
    fold_affine_chains,  # after data movement between links was merged
)
"""The rewrites of a round, in order; each returns whether it changed the graph."""
_MOST_ROUNDS: Final = 1000
"""Each round leaves fewer nodes, or fewer unknown shapes."""
_LOG: Final = logging.getLogger(__name__)


def simplify_graph(model: ModelProto) -> None:
    """Rewrite a model in place until no rewrite applies, and note the types of its values.

    Outputs keep their names and order, inputs stay.
    """
    graph, opset = model.graph, check_operators.read_opset(model.opset_import)
    name_nodes(graph)
    store_constants(graph)
    for count in range(_MOST_ROUNDS):
        note_types(model)
        view = GraphView(graph, opset)
        changes = [rewrite.__name__ for rewrite in REWRITES if rewrite(view)]
        drop_dead(graph)
        _LOG.debug("round %d of simplify: %s", count + 1, ", ".join(changes) or "no change")
        if not changes:
            return
