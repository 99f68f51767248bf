"""An input without elements, through a whole run and its package."""

import numpy as np
import pytest

import autopipe
from autopipe.api import flow
from tests.compiler.frontends.models import model, node, save, value

PIPELINE = """
version: 1
name: small
model: {path: model.onnx}
tasks: {allow_empty: true}
tuning: null
benchmark: null
"""
X = np.zeros((2, 0), "float32")
Z = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize(
    ("nodes", "inputs", "expected"),
    [
        ([node("ReduceMax", ["x"], "y", axes=[1])], {"x": X}, np.full((2, 1), -np.inf)),
        ([node("Concat", ["x", "z"], "y", axis=1)], {"x": X, "z": Z}, Z),
        ([node("Relu", ["x"], "y")], {"x": X}, X),
    ],
)
def test_an_input_without_elements_is_verified_and_packed(tmp_path, nodes, inputs, expected):
    taken = [value(name, array.shape) for name, array in inputs.items()]
    save(model(nodes, taken, [value("y", expected.shape)]), tmp_path)
    file = tmp_path / "small.yaml"
    file.write_text(PIPELINE)
    flow.run(file, store=tmp_path / "store", output=tmp_path)
    outputs = autopipe.open_package(tmp_path / "small.tar")(inputs)
    np.testing.assert_array_equal(outputs["y"], expected)
