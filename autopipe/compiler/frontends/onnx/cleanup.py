"""Clean-up of an ONNX graph: what TVM would import clumsily, in the form it imports well."""

import contextlib
import io
import logging
from collections.abc import Mapping
from typing import Final

import onnx
import onnxslim

from autopipe.compiler.frontends.onnx import affine
from autopipe.compiler.frontends.onnx.tensors import Array, Proto
from autopipe.compiler.frontends.onnx.weights import attach
from autopipe.errors import ModelError

# It puts a Reshape before and after each dense layer on a sequence; TVM multiplies as it is.
_SKIPPED: Final = ["FusionGemm"]


def clean(model: Proto, weights: Mapping[str, Array]) -> Proto:
    """Return the same function as a simpler graph, with the weights in it.

    Constants are folded, batch norm goes into the convolution before it or becomes one scale and
    one shift, and what does nothing in inference is dropped.
    """
    full = onnx.ModelProto()
    full.CopyFrom(model)
    attach(full.graph, weights)
    logging.getLogger("onnxslim").disabled = True
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            slim = onnxslim.slim(full, skip_fusion_patterns=_SKIPPED)
    except Exception as error:  # a library of patterns, on a graph nobody has seen before
        raise ModelError(f"graph clean-up failed: {type(error).__name__}: {error}") from error
    del slim.graph.input[:]  # an input that nothing reads was dropped with what read it
    slim.graph.input.extend(full.graph.input)
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*slim.graph.input, *slim.graph.value_info)
        if value.type.tensor_type.HasField("shape")
    }
    affine.fuse(slim.graph, ranks)
    return slim
