from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.load import load_model
from tests.compiler.frontends.models import compiled, model, node, run, save, value

TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "float32": TensorProto.FLOAT}


def drawn(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    if dtype == "float32":
        return random.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, shape, dtype, endpoint=True)


def stored(name, values):
    return numpy_helper.from_array(np.asarray(values), name)


def check(made, tmp_path, **feeds):
    """Import a model, and compare its outputs with onnxruntime's to the bit."""
    imported = load_model(save(made, tmp_path), {}, None, None)
    for ours, reference in zip(compiled(imported, feeds), run(made, feeds, "ENABLE"), strict=True):
        assert ours.dtype == reference.dtype
        np.testing.assert_array_equal(ours, reference)
    return imported


def integer_op(kind, x, w, points, **attributes):
    names = [name if name in points else "" for name in ("p", "q")]
    nodes = [node(kind, ["x", "w", *names], **attributes)]
    inputs = [value("x", x.shape, TYPES[str(x.dtype)])]
    kept = [stored("w", w), *(stored(name, point) for name, point in points.items())]
    outputs = [value("y", None, TensorProto.INT32)]
    return model(nodes, inputs, outputs, kept)


SIGNS = [(a, b) for a in ("uint8", "int8") for b in ("uint8", "int8")]
POINTS = {
    "none": lambda a, b: {},
    "both": lambda a, b: {"p": a(3), "q": b(100)},
}


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("signs", SIGNS, ids="-".join)
def test_matmul(tmp_path, signs, points):
    x, w = drawn((2, 5, 7), signs[0]), drawn((7, 6), signs[1], 1)
    made = integer_op("MatMulInteger", x, w, POINTS[points](*(np.dtype(s).type for s in signs)))
    check(made, tmp_path, x=x)


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("signs", [("uint8", "int8"), ("uint8", "uint8")], ids="-".join)
def test_convolution(tmp_path, signs, points):
    x, w = drawn((1, 3, 7, 6), signs[0]), drawn((5, 3, 3, 3), signs[1], 1)
    made = integer_op(
        "ConvInteger", x, w, POINTS[points](*(np.dtype(s).type for s in signs)), pads=[1, 0, 2, 1]
    )
    check(made, tmp_path, x=x)


@pytest.mark.parametrize(("zero", "padded"), [(0, False), (3, True)])
def test_only_a_border_of_other_bytes_than_0_is_written_first(tmp_path, zero, padded):
    x, w = drawn((1, 4, 7, 6), "uint8"), drawn((5, 4, 3, 3), "int8", 1)
    made = integer_op("ConvInteger", x, w, {"p": np.uint8(zero)}, pads=[1, 0, 2, 1])
    imported = check(made, tmp_path, x=x)
    text = imported.module.script()
    assert ("nn.pad(" in text) == padded
    assert ("padding=[1, 0, 2, 1]" in text) != padded


CONVOLUTIONS: dict[str, tuple[Any, Any, Any]] = {
    "strided": ((1, 4, 9, 8), (6, 4, 3, 3), {"strides": [2, 1], "pads": [1, 1, 1, 1]}),
    "dilated": ((1, 4, 9, 8), (6, 4, 3, 3), {"dilations": [2, 1]}),
    "grouped": ((1, 6, 5, 5), (4, 3, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "depthwise": ((1, 6, 5, 5), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    "same_upper": ((1, 4, 8, 7), (6, 4, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same_lower": ((1, 4, 8, 7), (6, 4, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "valid": ((1, 4, 8, 7), (6, 4, 3, 2), {"auto_pad": "VALID"}),
    "one_axis": ((1, 4, 9), (6, 4, 3), {"pads": [1, 1]}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_attributes_of_convolutions(tmp_path, case):
    shape, window, attributes = CONVOLUTIONS[case]
    x, w = drawn(shape, "uint8"), drawn(window, "int8", 1)
    points = {"p": np.uint8(9), "q": np.int8(-5)}
    check(integer_op("ConvInteger", x, w, points, **attributes), tmp_path, x=x)


def computed(made, tmp_path, x):
    """Return the output of a model that onnxruntime does not run."""
    imported = load_model(save(made, tmp_path), {}, None, None)
    return compiled(imported, {"x": x})[0]


def test_zero_points_of_rows_and_columns(tmp_path):
    x, w = drawn((5, 6), "uint8"), drawn((6, 3), "int8", 1)
    p, q = drawn((5,), "uint8", 2), drawn((3,), "int8", 3)
    found = computed(integer_op("MatMulInteger", x, w, {"p": p, "q": q}), tmp_path, x)
    np.testing.assert_array_equal(found, (x.astype(int) - p[:, None]) @ (w.astype(int) - q))


def test_zero_points_of_output_channels(tmp_path):
    x, w = drawn((1, 4, 5, 5), "uint8"), drawn((6, 4, 1, 1), "int8", 1)
    p, q = np.uint8(3), drawn((6,), "int8", 3)
    found = computed(integer_op("ConvInteger", x, w, {"p": p, "q": q}), tmp_path, x)
    wide = w[:, :, 0, 0].astype(int) - q[:, None]
    np.testing.assert_array_equal(found, np.einsum("ncij,mc->nmij", x.astype(int) - p, wide))


def test_a_vector_times_a_matrix(tmp_path):
    x, w = drawn((8,), "uint8"), drawn((8, 6), "int8", 1)
    check(integer_op("MatMulInteger", x, w, {"p": np.uint8(3)}), tmp_path, x=x)


def dynamic(kind, x, w, **attributes):
    """A layer as onnxruntime's `quantize_dynamic` writes it, on data of any range."""
    names = ["values", "scale", "point"]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], names),
        node(kind, ["values", "w", "point"], "sums", **attributes),
        node("Cast", ["sums"], "real", to=TensorProto.FLOAT),
        node("Mul", ["real", "scale"]),
    ]
    inputs, outputs = [value("x", x.shape)], [value("y", None)]
    return model(nodes, inputs, outputs, [stored("w", w)])


def test_dynamic_matmul(tmp_path):
    x = drawn((2, 5, 8), "float32")
    check(dynamic("MatMulInteger", x, drawn((8, 6), "int8")), tmp_path, x=x)


def test_dynamic_convolution(tmp_path):
    x = drawn((1, 3, 7, 7), "float32")
    made = dynamic("ConvInteger", x, drawn((5, 3, 3, 3), "int8"), pads=[1, 1, 1, 1])
    check(made, tmp_path, x=x)
