"""Clean-up of an ONNX graph: what TVM would import clumsily, in the form it imports well."""

import contextlib
import io
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Final

import onnx
import onnxslim
from onnx.numpy_helper import to_array

from autopipe.compiler.frontends.onnx import affine, constants, masks, operators, quantized, shapes
from autopipe.compiler.frontends.onnx.control.flatten import flatten
from autopipe.compiler.frontends.onnx.expand import expanded
from autopipe.compiler.frontends.onnx.named import name_nodes
from autopipe.compiler.frontends.onnx.recurrent.noted import note_shapes
from autopipe.compiler.frontends.onnx.tensors import Array, Proto, graphs, uses
from autopipe.compiler.frontends.onnx.weights import attach, declare, detach, undeclare
from autopipe.errors import ModelError

# It puts a Reshape before and after each dense layer on a sequence; TVM multiplies as it is.
_SKIPPED: Final = ["FusionGemm"]
_NODE: Final = "node:"
_LARGE = 2**26
"""Bytes of a weight that stays out: nothing folds into it, and a protobuf holds 2 GiB."""


def clean(model: Proto, weights: Mapping[str, Array]) -> tuple[Proto, dict[str, Array]]:
    """Return the same function as a simpler graph, and its weights, inputs of that graph.

    Constants are folded, batch norm goes into the convolution before it or becomes one scale and
    one shift, and what does nothing in inference is dropped.
    """
    large = {name: values for name, values in weights.items() if values.nbytes >= _LARGE}
    full = onnx.ModelProto()
    simple = expanded(model)
    if simple is not model:
        operators.check(simple.graph)
    full.CopyFrom(simple)
    attach(full.graph, {name: weights[name] for name in weights if name not in large})
    quantized.rewrite(full.graph)
    for value in full.graph.output:  # onnxslim's own inference loses some, and trips over that
        value.type.tensor_type.ClearField("shape")
    slim = _sized(full)
    slim = flatten(slim, _slim)
    del slim.graph.output[:]
    slim.graph.output.extend(model.graph.output)
    del slim.graph.input[:]  # an input that nothing reads was dropped with what read it
    slim.graph.input.extend(full.graph.input)
    masks.ask_all(slim.graph)
    constants.store_shapes(slim.graph, shapes.static(slim.graph))
    if simple is not model:
        masks.drop_empty(slim.graph)
    affine.fuse(slim.graph, _ranks(slim.graph))
    folded = detach(slim.graph)
    read = uses(slim.graph)
    undeclare(slim.graph, {name for name in large if not read[name]})
    kept = {each.name: large[each.name] for each in slim.graph.input if each.name in large}
    declare(slim.graph, folded)
    return slim, kept | {name: to_array(tensor) for name, tensor in folded.items()}


def _sized(model: Proto) -> Proto:
    """Return a model with its constants folded, those that hang on the shapes of layers as well."""
    before, left = -1, note_shapes(model)
    slim = _slim(model)
    while left and left != before:
        before, left = left, note_shapes(slim)
        slim = _slim(slim)
    return slim


def _slim(model: Proto) -> Proto:
    """Fold and simplify until no shape is left to compute, or no node goes away any more.

    onnxslim folds in an order that differs from run to run, and stops early in some of them. What
    one block of a Swin transformer pads by hangs on the shape of the block before it: a run of
    onnxslim knows those of some blocks, and the next one those of more.
    """
    logging.getLogger("onnxslim").disabled = True
    opset = operators.opset(model.opset_import)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            slim, before = _simplified(model), math.inf
            while (nodes := len(slim.graph.node)) < before and (
                constants.fold(slim.graph, opset) or _asks_shapes(slim.graph)
            ):
                slim, before = _simplified(slim), nodes
            return slim
    except Exception as error:  # a library of patterns, on a graph nobody has seen before
        raise ModelError(f"graph clean-up failed: {type(error).__name__}: {error}") from error


def _asks_shapes(graph: Proto) -> bool:
    return any(node.op_type == "Shape" for node in graph.node)


def _simplified(model: Proto) -> Proto:
    """Run onnxslim, which takes a node without a name, or with that of a tensor, for another."""
    name_nodes(model.graph)
    for node in _nodes(model.graph):
        if node.name in node.output:
            node.name = _NODE + node.name
    slim = onnxslim.slim(model, skip_fusion_patterns=_SKIPPED)
    for node in _nodes(slim.graph):
        node.name = node.name.removeprefix(_NODE)
    return slim


def _nodes(graph: Proto) -> Iterator[Proto]:
    return (node for inner in graphs(graph) for node in inner.node)


def _ranks(graph: Proto) -> dict[str, int]:
    return {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info)
        if value.type.tensor_type.HasField("shape")
    }
