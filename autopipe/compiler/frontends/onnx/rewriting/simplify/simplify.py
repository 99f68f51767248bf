"""Simplifies an ONNX graph by a fixed list of rewrites, each proved for every input.

All but the folding of scales into convolutions keep every bit: constant folding evaluates nodes by
the reference of the onnx library, and the others drop or join nodes that only pass on or move what
they are given. Folding a scale into weights rounds the product of the two instead of the result.
"""

from typing import Final

from autopipe.compiler.frontends.onnx.reading import check_operators
from autopipe.compiler.frontends.onnx.reading.tensors import Proto, name_nodes
from autopipe.compiler.frontends.onnx.rewriting.simplify import (
    fold_affine,
    fold_constants,
    merge_duplicates,
    merge_movements,
    remove_no_ops,
)
from autopipe.compiler.frontends.onnx.rewriting.simplify.graph_view import drop_dead
from autopipe.compiler.frontends.onnx.rewriting.simplify.value_types import note_types

_MOST_ROUNDS: Final = 1000
"""Each round leaves fewer nodes, or fewer unknown shapes."""


def simplify_graph(model: Proto) -> None:
    """Rewrite a model in place until no rewrite applies, and note the types of its values.

    Outputs keep their names and order, inputs stay.
    """
    graph, opset = model.graph, check_operators.read_opset(model.opset_import)
    name_nodes(graph)
    fold_constants.store_constants(graph)
    for _ in range(_MOST_ROUNDS):
        note_types(model)
        changed = [
            remove_no_ops.remove_no_ops(graph),
            merge_duplicates.merge_duplicates(graph),
            fold_constants.fold_constants(graph, opset),
            merge_movements.merge_movements(graph, opset),
            fold_affine.fold_affine_chains(graph),
        ]
        drop_dead(graph)
        if not any(changed):
            return
