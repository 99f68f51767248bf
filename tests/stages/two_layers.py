"""A model of two dense layers: two tasks, which is enough to tell each from all."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (64, 96, 40)
"""Values of a row before, between and after the layers."""

PIPELINE = "version: 1\nname: two-layers\nmodel: {path: two-layers.onnx}\n"


def write(folder: Path) -> Path:
    """Write the model and its pipeline file; return that file."""
    values = np.random.default_rng(0)
    weights = {
        "first": values.standard_normal(SIZES[:2], "f"),
        "second": values.standard_normal(SIZES[1:], "f"),
        "shift": values.standard_normal(SIZES[1], "f"),
        "bias": values.standard_normal(SIZES[2], "f"),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "first"], ["product"]),
            helper.make_node("Add", ["product", "shift"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["hidden"]),
            helper.make_node("MatMul", ["hidden", "second"], ["scored"]),
            helper.make_node("Add", ["scored", "bias"], ["scores"]),
        ],
        "two-layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (8, SIZES[0]))],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (8, SIZES[2]))],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "two-layers.onnx")
    file = folder / "two-layers.yaml"
    file.write_text(PIPELINE, encoding="utf-8")
    return file
