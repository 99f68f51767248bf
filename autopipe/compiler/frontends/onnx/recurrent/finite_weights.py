"""Note on recurrent nodes that their recurrent weights are finite.

When a node is converted, weights are parameters without known values.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from onnx import ModelProto, helper

from autopipe.compiler.frontends.onnx.reading import tensors
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.compiler.recurrence.form import GATES

NOTE: Final = "autopipe_finite_weights"
"""Attribute of a node with finite recurrent weights. The gate rejects files that contain it."""

_WEIGHTS: Final = 2
"""Index of the recurrent weights among the inputs of a node."""


def note_finite_weights(model: ModelProto, weights: Mapping[str, Array]) -> None:
    """Add an attribute to each recurrent node with known finite recurrent weights."""
    for graph in tensors.list_graphs(model.graph):
        for node in graph.node:
            if node.op_type not in GATES or len(node.input) <= _WEIGHTS:
                continue
            values = weights.get(node.input[_WEIGHTS])
            if values is not None and np.isfinite(values).all():
                node.attribute.append(helper.make_attribute(NOTE, 1))
