"""Inputs of one number that decide shapes are told when a model is imported."""

import numpy as np
from onnx import TensorProto, numpy_helper

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.config.model import Input
from tests.compiler.frontends.models import model, node, save, value

INT = TensorProto.INT64


def warnings_of(folder, **inputs):
    nodes = [
        node("Mul", ["steps", "two"], "count"),
        node("Unsqueeze", ["count", "axis"], "counts"),
        node("Concat", ["counts", "three"], "shape", axis=0),
        node("ConstantOfShape", ["shape"], "zeros"),
        node("Cast", ["shift"], "shifted", to=TensorProto.FLOAT),
        node("Add", ["zeros", "shifted"], "moved"),
        node("Gather", ["moved", "row"], "y", axis=0),
    ]
    stored = {"two": 2, "axis": [0], "three": [3]}
    weights = [numpy_helper.from_array(np.array(each), name) for name, each in stored.items()]
    given = [value(name, [], INT) for name in ("steps", "shift")] + [value("row", [4], INT)]
    made = model(nodes, given, [value("y", None)], weights)
    return load_model(save(made, folder), inputs, None, None).warnings


def test_an_input_that_decides_a_shape_is_told(tmp_path):
    (told,) = warnings_of(tmp_path)
    assert told.startswith("input 'steps' decides shapes, in ConstantOfShape ")
    assert "model.inputs.steps.value" in told


def test_an_input_with_a_value_decides_nothing(tmp_path):
    assert warnings_of(tmp_path, steps=Input(shape=(), value=5)) == ()
