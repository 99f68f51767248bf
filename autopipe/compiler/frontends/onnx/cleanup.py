"""Clean-up of an ONNX graph: what TVM would import clumsily, in the form it imports well."""

from collections.abc import Mapping
from typing import Final

import onnx
from onnx.numpy_helper import to_array

from autopipe.compiler.frontends.onnx import (
    constants,
    empties,
    masks,
    operators,
    quantized,
    shapes,
)
from autopipe.compiler.frontends.onnx.control.flatten import flatten
from autopipe.compiler.frontends.onnx.expand import expanded
from autopipe.compiler.frontends.onnx.recurrent.noted import note_shapes
from autopipe.compiler.frontends.onnx.simplify.simplify import simplify
from autopipe.compiler.frontends.onnx.tensors import Array, Proto, uses
from autopipe.compiler.frontends.onnx.weights import attach, declare, detach, undeclare

_LARGE: Final = 2**26
"""Bytes of a weight that stays out: nothing folds into it, and a protobuf holds 2 GiB."""


def clean(model: Proto, weights: Mapping[str, Array]) -> tuple[Proto, dict[str, Array]]:
    """Return the same function as a simpler graph, and its weights, inputs of that graph.

    Constants are folded, batch norm goes into the convolution before it or becomes one scale and
    one shift, and what does nothing in inference is dropped.
    """
    large = {name: values for name, values in weights.items() if values.nbytes >= _LARGE}
    plain = onnx.ModelProto()
    plain.CopyFrom(expanded(model))
    is_expanded = len(plain.graph.node) != len(model.graph.node)
    if is_expanded:
        operators.check(plain.graph)
    empties.fold(plain)
    attach(plain.graph, {name: weights[name] for name in weights if name not in large})
    quantized.rewrite(plain.graph)
    for value in plain.graph.output:  # what a file declares may be wrong
        value.type.tensor_type.ClearField("shape")
    _simplify(plain)
    plain = flatten(plain, simplify)
    graph = plain.graph
    for value, declared in zip(graph.output, model.graph.output, strict=True):
        value.CopyFrom(declared)
    masks.ask_all(graph)
    constants.store_shapes(graph, shapes.static(graph))
    if is_expanded:
        masks.drop_empty(graph)
    folded = detach(graph)
    read = uses(graph)
    undeclare(graph, {name for name in large if not read[name]})
    kept = {each.name: large[each.name] for each in graph.input if each.name in large}
    declare(graph, folded)
    empties.fold(plain)  # those whose shape was computed of constants
    return plain, kept | {name: to_array(tensor) for name, tensor in folded.items()}


def _simplify(model: Proto) -> None:
    """Simplify a model, and again as long as that tells shapes of more layers."""
    before, left = -1, note_shapes(model)
    simplify(model)
    while left and left != before:
        before, left = left, note_shapes(model)
        simplify(model)
