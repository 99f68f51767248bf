from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.onnx.rewriting.quantized_products import fuse_quantized
from tests.compiler.frontends.models import compiled, model, node, run, save, value
from tests.compiler.frontends.test_integers import drawn, stored

SCALES = {"xs": np.float32(0.02), "ys": np.float32(0.11)}


def check(made, tmp_path, level="ENABLE"):
    """Import a model, compare with onnxruntime, and count what it was rewritten to."""
    imported = load_model(save(made, tmp_path), {}, None, None)
    feeds = {each.name: drawn(each.shape, "float32") for each in imported.inputs}
    for ours, reference in zip(compiled(imported, feeds), run(made, feeds, level), strict=True):
        assert np.abs(reference).max() > 0
        np.testing.assert_allclose(ours, reference, rtol=1e-5, atol=1e-6)
    graph = made.graph
    fuse_quantized(graph)
    return Counter(each.op_type for each in graph.node)


def between(nodes, x, constants, *, output="y", quantized=True):
    """A model that runs nodes on bytes made of `x`, and makes floats of the bytes `out`."""
    first = node("QuantizeLinear", ["x", "xs", "xz"], "bytes")
    last = [node("DequantizeLinear", ["out", "ys", "yz"])] if quantized else []
    points = {"xz": np.uint8(120), "yz": np.uint8(3)}
    kept = [stored(name, each) for name, each in {**SCALES, **points, **constants}.items()]
    return model([first, *nodes, *last], [value("x", x)], [value(output, None)], kept)


def layer(kind, weights, *, scale, bias=None, middle=(), axis=0, last=True, **attributes):
    """An operator on dequantized tensors, quantized again, as `quantize_static` writes it."""
    constants = {"w": weights, "ws": scale, "wz": np.zeros_like(scale, weights.dtype)}
    nodes = [
        node("DequantizeLinear", ["bytes", "xs", "xz"], "a"),
        node("DequantizeLinear", ["w", "ws", "wz"], "b", axis=axis),
    ]
    names = ["a", "b"]
    if bias is not None and bias.dtype == np.int32:
        constants |= {"bias": bias, "bs": np.asarray(SCALES["xs"] * scale)}
        nodes.append(node("DequantizeLinear", ["bias", "bs"], "c", axis=0))
        names.append("c")
    elif bias is not None:
        constants["bias"] = bias
        names.append("bias")
    made = "y" if not last else "made"
    nodes.append(node(kind, names, made if not middle else "before", **attributes))
    nodes.extend(node(each, ["before"], made) for each in middle)
    if last:
        nodes.append(node("QuantizeLinear", ["made", "ys", "yz"], "out"))
    return nodes, constants


IMAGE, KERNEL = (1, 4, 6, 6), (6, 4, 3, 3)
EACH = np.linspace(0.01, 0.03, 6, dtype="float32")
ONE = np.float32(0.013)
BIAS = np.arange(-300, 300, 100, dtype=np.int32)

CONVOLUTIONS: dict[str, Any] = {
    "no_bias": {"scale": ONE},
    "whole_bias": {"scale": ONE, "bias": BIAS},
    "float_bias": {"scale": ONE, "bias": BIAS.astype("float32") / 100},
    "scale_a_channel": {"scale": EACH, "bias": BIAS, "pads": [1, 1, 1, 1]},
    "relu": {"scale": EACH, "bias": BIAS, "middle": ["Relu"]},
    "not_quantized_again": {"scale": EACH, "bias": BIAS, "last": False},
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_are_of_integers(tmp_path, case):
    settings = dict(CONVOLUTIONS[case])
    nodes, constants = layer("Conv", drawn(KERNEL, "int8"), **settings)
    made = between(nodes, IMAGE, constants, quantized=settings.get("last", True))
    ops = check(made, tmp_path)
    assert ops["ConvInteger"] == 1
    assert "Conv" not in ops


def test_bytes_are_rounded_as_by_onnxruntime_but_for_ties(tmp_path):
    nodes, constants = layer("Conv", drawn(KERNEL, "int8"), scale=EACH, bias=BIAS)
    made = between(nodes, (1, 4, 40, 40), constants, output="out", quantized=False)
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    imported = load_model(save(made, tmp_path), {}, None, None)
    feeds = {"x": drawn((1, 4, 40, 40), "float32")}
    ours, reference = (
        each[0].astype(int) for each in (compiled(imported, feeds), run(made, feeds, "ENABLE"))
    )
    assert np.abs(ours - reference).max() <= 1
    assert np.mean(ours != reference) < 1e-3


MATRICES: dict[str, Any] = {
    "matmul": ("MatMul", (8, 6), {"scale": ONE}),
    "scale_a_column": ("MatMul", (8, 6), {"scale": EACH, "axis": 1}),
    "gemm": ("Gemm", (8, 6), {"scale": ONE, "bias": BIAS}),
    "gemm_transposed": ("Gemm", (6, 8), {"scale": EACH, "bias": BIAS, "transB": 1}),
}


@pytest.mark.parametrize("case", MATRICES)
def test_matrix_products_are_of_integers(tmp_path, case):
    kind, shape, settings = MATRICES[case]
    nodes, constants = layer(kind, drawn(shape, "int8"), **settings)
    ops = check(between(nodes, (5, 8), constants), tmp_path)
    assert ops["MatMulInteger"] == 1
    assert kind not in ops


KEPT: dict[str, Any] = {
    "scaled": ("Gemm", (8, 6), {"scale": ONE, "alpha": 0.5}),
    "transposed": ("Gemm", (5, 6), {"scale": ONE, "transA": 1}),
    "scale_a_row": ("MatMul", (8, 6), {"scale": np.linspace(0.01, 0.03, 8, dtype="f"), "axis": 0}),
}


@pytest.mark.parametrize("case", KEPT)
def test_other_products_stay_as_they_are(tmp_path, case):
    kind, shape, settings = KEPT[case]
    nodes, constants = layer(kind, drawn(shape, "int8"), **settings)
    assert check(between(nodes, (5, 8), constants), tmp_path, "DISABLE")[kind] == 1


def test_products_of_activations_are_of_integers(tmp_path):
    nodes = [
        node("DequantizeLinear", ["bytes", "xs", "xz"], "a"),
        node("Transpose", ["bytes"], "turned", perm=[0, 2, 1]),
        node("DequantizeLinear", ["turned", "xs", "xz"], "b"),
        node("MatMul", ["a", "b"], "made"),
        node("QuantizeLinear", ["made", "ys", "yz"], "out"),
    ]
    assert check(between(nodes, (2, 5, 8), {}), tmp_path)["MatMulInteger"] == 1


@pytest.mark.parametrize("bias", [False, True])
def test_qlinearconv(tmp_path, bias):
    names = ["bytes", "xs", "xz", "w", "ws", "wz", "ys", "yz", *["bias"] * bias]
    nodes = [node("QLinearConv", names, "out", pads=[1, 1, 1, 1])]
    constants = {"w": drawn(KERNEL, "int8"), "ws": EACH, "wz": np.zeros(6, np.int8)}
    made = between(nodes, IMAGE, constants | ({"bias": BIAS} if bias else {}))
    ops = check(made, tmp_path)
    assert ops["ConvInteger"] == 1
    assert ops["QLinearConv"] == ops["Conv"] == 0


def test_qlinearmatmul(tmp_path):
    nodes = [node("QLinearMatMul", ["bytes", "xs", "xz", "w", "ws", "wz", "ys", "yz"], "out")]
    constants = {"w": drawn((8, 6), "uint8"), "ws": ONE, "wz": np.uint8(128)}
    assert check(between(nodes, (5, 8), constants), tmp_path)["MatMulInteger"] == 1


def moved(*nodes, points=(("xs", "xz"), ("xs", "xz"))):
    """A model that makes floats of bytes, moves them, and makes bytes of them again."""
    (scale, zero), (step, point) = points
    steps = [
        node("DequantizeLinear", ["bytes", scale, zero], "floats"),
        *nodes,
        node("QuantizeLinear", ["moved", step, point], "out"),
    ]
    shape = np.array([2, 8, 8], np.int64)
    return between(steps, (1, 4, 8, 8), {"shape": shape, "axes": np.array([0], np.int64)})


POOL = node("MaxPool", ["floats"], "moved", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
MOVES = {
    "pool": [POOL],
    "transposed": [node("Transpose", ["floats"], "moved", perm=[0, 2, 3, 1])],
    "joined": [
        node("Transpose", ["floats"], "turned", perm=[0, 1, 3, 2]),
        node("QuantizeLinear", ["turned", "ys", "yz"], "other"),
        node("DequantizeLinear", ["other", "ys", "yz"], "back"),
        node("Concat", ["floats", "back"], "moved", axis=1),
    ],
}


@pytest.mark.parametrize("points", [(("xs", "xz"), ("xs", "xz")), (("xs", "xz"), ("ys", "yz"))])
@pytest.mark.parametrize("case", MOVES)
def test_what_moves_floats_moves_bytes(tmp_path, case, points):
    ops = check(moved(*MOVES[case], points=points), tmp_path)
    other_scale = points[0] != points[1]
    assert ops["QuantizeLinear"] == 1 + (2 if case == "joined" else other_scale)


def test_floats_that_others_read_are_kept(tmp_path):
    nodes = [POOL, node("Relu", ["moved"], "also")]
    made = moved(*nodes)
    made.graph.output.append(value("also", None))
    assert check(made, tmp_path)["QuantizeLinear"] == 2


@pytest.mark.parametrize("middle", [[], ["Relu"]])
def test_sums_of_bytes_are_scaled_once(tmp_path, middle):
    nodes = [node("Add", ["floats", "floats"], "sum" if middle else "moved")]
    nodes += [node(kind, ["sum"], "moved") for kind in middle]
    made = moved(*nodes, points=(("xs", "xz"), ("ys", "yz")))
    check(made, tmp_path)
    stored_ones = [t for t in made.graph.initializer if t.name.endswith("/one")]
    assert len(stored_ones) == 1


def test_what_becomes_no_bytes_again_stays(tmp_path):
    nodes = [POOL, node("Softmax", ["moved"], "soft"), node("Add", ["soft", "soft"], "twice")]
    made = moved(*nodes)
    made.graph.node[-2].input[0] = "twice"
    assert check(made, tmp_path)["QuantizeLinear"] == 2
