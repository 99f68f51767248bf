import numpy as np
import pytest
from onnx import TensorProto, helper

from autopipe.compiler.frontends.onnx.load import load_model
from tests.compiler.frontends.models import compiled, model, node, run, save, value
from tests.compiler.frontends.test_integers import drawn, stored


def outputs(made, tmp_path, x):
    """Import a model with one input; return its outputs and those of onnxruntime."""
    imported = load_model(save(made, tmp_path), {}, None, None)
    return compiled(imported, {"x": x}), run(made, {"x": x}), imported


def there_and_back(x, scale, zero, *, opset=17, **attributes):
    names = ["x", "s", "z"] if zero is not None else ["x", "s"]
    back = ["q", *names[1:]]
    nodes = [
        node("QuantizeLinear", names, "q", **attributes),
        node("DequantizeLinear", back, "y", **attributes),
    ]
    kept = [stored("s", scale)] + ([stored("z", zero)] if zero is not None else [])
    kinds = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16}
    made_of = "uint8" if zero is None else str(zero.dtype)
    results = [value("q", None, kinds[made_of]), value("y", None)]
    return model(nodes, [value("x", x.shape)], results, kept, opset=opset)


SCALE = np.float32(0.03)
CASES = {
    "unsigned": (SCALE, np.uint8(100), {}),
    "signed": (SCALE, np.int8(-7), {}),
    "no_zero_point": (SCALE, None, {}),
    "list_of_one": (np.full(1, 0.03, "f"), np.zeros(1, np.int8), {}),
    "each_channel": (np.array([0.01, 0.1, 3], "f"), np.array([0, 5, 250], np.uint8), {}),
    "each_row": (np.array([0.01, 0.1], "f"), np.array([0, 5], np.uint8), {"axis": -4}),
    "words": (SCALE, np.uint16(1000), {"opset": 21}),
    "oldest": (SCALE, np.uint8(100), {"opset": 10}),
    "newest": (SCALE, np.uint8(100), {"opset": 23}),
}


@pytest.mark.parametrize("case", CASES)
def test_bytes_are_those_of_onnxruntime(tmp_path, case):
    scale, zero, settings = CASES[case]
    x = 4 * drawn((2, 3, 5, 5), "float32")
    found, expected, _ = outputs(there_and_back(x, scale, zero, **settings), tmp_path, x)
    for ours, reference in zip(found, expected, strict=True):
        assert ours.dtype == reference.dtype
        np.testing.assert_array_equal(ours, reference)


def test_layouts_get_past_quantization(tmp_path):
    x = drawn((2, 3, 5, 5), "float32")
    *_, imported = outputs(there_and_back(x, SCALE, np.uint8(100)), tmp_path, x)
    text = imported.module.script()
    assert not [op for op in ("R.quantize", "R.dequantize", "R.clip") if op in text]


@pytest.mark.parametrize("shape", [(7,), (2, 5, 8), (1, 3, 7, 7)])
@pytest.mark.parametrize("factor", [1.0, 0.0, -1.0])
def test_the_range_of_the_data_is_found(tmp_path, shape, factor):
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    results = [
        value("q", None, TensorProto.UINT8), value("s", []), value("z", [], TensorProto.UINT8)
    ]  # fmt: skip
    x = np.abs(drawn(shape, "float32")) if factor < 0 else drawn(shape, "float32")
    x = (x * factor).astype("float32")
    made = model(nodes, [value("x", shape)], results)
    found, expected, _ = outputs(made, tmp_path, x)
    for ours, reference in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, reference)
