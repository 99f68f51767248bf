"""Rewrites of clean-up, each beside cases that look alike and are not to be rewritten."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.reading import gate
from autopipe.compiler.frontends.onnx.reading.weights import attach_weights
from autopipe.compiler.frontends.onnx.rewriting.cleanup import clean_model
from tests.compiler.frontends.models import by_onnx, ints, model, node, run, tensor, value
from tests.support.table import each_row


def simplified(made, *, rtol=0.0, runtime=by_onnx, **given):
    """Clean a model up, compare what it computes before and after; return its operators."""
    vetted = gate.vet_model(made.SerializeToString(), Path("m.onnx"), {})
    weights = {name: numpy_helper.to_array(stored) for name, stored in vetted.weights.items()}
    result, kept = clean_model(vetted.model, weights)
    attach_weights(result.graph, kept)
    random = np.random.default_rng(0)
    feeds = {each.name: random.standard_normal(each.shape, "f") for each in vetted.inputs} | given
    for before, after in zip(runtime(made, feeds), runtime(result, feeds), strict=True):
        assert (before.dtype, before.shape) == (after.dtype, after.shape)
        np.testing.assert_allclose(after, before, rtol, rtol)
        if not rtol and before.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(after), np.signbit(before))
    return Counter(each.op_type for each in result.graph.node)


def convolved(kind, spatial, scale, operand="Mul"):
    """Eight channels of 1x1 kernels on images of side 8, scaled behind it."""
    size = [8] * spatial
    shape = [8, 3] if kind == "Conv" else [3, 8]
    nodes = [node(kind, ["x", "w"], "a"), node(operand, ["a", "s"])]
    stored = [tensor("w", *shape, *[1] * spatial), tensor("s", *scale)]
    return model(nodes, [value("x", [1, 3, *size])], [value("y", None)], stored)


@each_row("kind, spatial, scale, joins", [
    ("Conv", 2, [8, 1, 1], True),
    ("Conv", 2, [1, 8, 1, 1], True),
    ("Conv", 2, [1], True),
    ("Conv", 2, [], True),
    ("Conv", 2, [8], False),
    ("Conv", 2, [8, 1], False),
    ("Conv", 2, [1, 1, 8, 1], False),
    ("Conv", 2, [1, 1, 1, 1, 8], False),
    ("Conv", 1, [8, 1], True),
    ("Conv", 1, [8], False),
    ("Conv", 3, [8, 1, 1, 1], True),
    ("Conv", 3, [8, 1, 1], False),
    ("ConvTranspose", 2, [8, 1, 1], True),
    ("ConvTranspose", 2, [8], False),
    ("ConvTranspose", 1, [8], False),
])  # fmt: skip
def test_only_what_scales_channels_joins_a_convolution(kind, spatial, scale, joins):
    for operand in ("Mul", "Add"):
        kinds = simplified(convolved(kind, spatial, scale, operand), rtol=1e-5)
        assert kinds == ({kind: 1} if joins else {kind: 1, operand: 1})


def test_a_scale_joins_a_transposed_convolution_of_groups():
    nodes = [node("ConvTranspose", ["x", "w", "b"], "a", group=2), node("Mul", ["a", "s"])]
    stored = [tensor("w", 4, 3, 2, 2), tensor("b", 6), tensor("s", 6, 1, 1)]
    made = model(nodes, [value("x", [1, 4, 5, 5])], [value("y", None)], stored)
    assert simplified(made, rtol=1e-5, runtime=run) == {"ConvTranspose": 1}


def test_a_convolution_of_computed_weights_keeps_its_scale():
    nodes = [node("Conv", ["x", "w"], "a"), node("Mul", ["a", "s"])]
    inputs = [value("x", [1, 3, 8, 8]), value("w", [8, 3, 1, 1])]
    made = model(nodes, inputs, [value("y", None)], [tensor("s", 1, 8, 1, 1)])
    assert simplified(made, rtol=1e-5) == {"Conv": 1, "Mul": 1}


def test_a_scale_that_weights_cannot_hold_stays():
    nodes = [node("Conv", ["x", "w"], "a"), node("Mul", ["a", "s"])]
    stored = [tensor("w", 8, 3, 1, 1, fill=1e20), tensor("s", fill=1e30)]
    made = model(nodes, [value("x", [1, 3, 2, 2])], [value("y", None)], stored)
    x = np.full([1, 3, 2, 2], 1e-20, "f")
    assert simplified(made, rtol=1e-5, x=x) == {"Conv": 1, "Mul": 1}


@each_row("first, second, joins", [
    (["x", "c", ""], ["x", "", "c"], False),
    (["x", "", "c"], ["x", "", "d"], True),
    (["x", "c"], ["x", "d"], True),
])  # fmt: skip
def test_inputs_that_are_left_out_tell_nodes_apart(first, second, joins):
    nodes = [node("Clip", first, "a"), node("Clip", second, "b"), node("Sub", ["a", "b"])]
    stored = [tensor("c", fill=0), tensor("d", fill=0)]
    made = model(nodes, [value("x", [6])], [value("y", None)], stored)
    assert simplified(made)["Clip"] == (1 if joins else 2)


@each_row("shape, scale", [([2, 2, 6], [6]), ([4, 6, 1], [6]), ([4, 6], [6])])
def test_a_dense_layer_that_others_read_keeps_its_weights(shape, scale):
    nodes = [
        node("Gemm", ["x", "w", "b"], "a", transB=1), node("Reshape", ["a", "shape"], "c"),
        node("Mul", ["c", "s"]), node("Relu", ["a"], "z"),
    ]  # fmt: skip
    stored = [tensor("w", 6, 5), tensor("b", 6), ints("shape", *shape), tensor("s", *scale)]
    outputs = [value("y", None), value("z", None)]
    simplified(model(nodes, [value("x", [4, 5])], outputs, stored), rtol=1e-5)
    simplified(model(nodes[:3], [value("x", [4, 5])], outputs[:1], stored), rtol=1e-5)


@each_row("pads, axes, fill, channels, attributes, joins", [
    ([1, 1, 1, 2], [2, 3], None, 3, {}, True),
    ([1, 1, 1, 2], [-1, 2], None, 3, {"pads": [1, 0, 0, 2]}, True),
    ([0, 0, 1, 1, 0, 0, 1, 2], None, 0.0, 3, {"auto_pad": "VALID"}, True),
    ([0, 1, 1, 1, 0, 0, 1, 1], None, None, 4, {}, False),
    ([1, 1], [1], None, 5, {}, False),
    ([0, 0, 1, 1, 0, 0, 1, 1], None, 1.5, 3, {}, False),
    ([1, 1, -1, 1], [2, 3], None, 3, {}, False),
    ([1, 1, 1, 1], [2, 3], None, 3, {"auto_pad": "SAME_UPPER"}, False),
])  # fmt: skip
def test_zeros_around_an_image_join_the_convolution(  # noqa: PLR0917 - a table
    pads, axes, fill, channels, attributes, joins
):
    stored = [tensor("w", 4, channels, 3, 3), ints("pads", *pads)]
    inputs = ["x", "pads", "" if fill is None else "fill", "" if axes is None else "axes"]
    stored += [] if fill is None else [tensor("fill", fill=fill)]
    stored += [] if axes is None else [ints("axes", *axes)]
    nodes = [node("Pad", inputs, "a"), node("Conv", ["a", "w"], **attributes)]
    made = model(nodes, [value("x", [1, 3, 6, 6])], [value("y", None)], stored, opset=18)
    kinds = simplified(made, rtol=1e-4, runtime=run)
    assert kinds == ({"Conv": 1} if joins else {"Pad": 1, "Conv": 1})


@pytest.mark.parametrize("opset", [10, 12, 13])
def test_a_dropout_goes_if_nothing_reads_its_mask(opset):
    dropout = helper.make_node("Dropout", ["x"], ["a", "mask"])
    nodes = [
        dropout, node("Cast", ["mask"], "number", to=TensorProto.FLOAT),
        node("Add", ["a", "number"]),
    ]  # fmt: skip
    made = model(nodes, [value("x", [2, 3])], [value("y", None)], opset=opset)
    assert simplified(made) == {"Dropout": 1, "Cast": 1, "Add": 1}
    made = model([dropout, node("Neg", ["a"])], [value("x", [2, 3])], [value("y", None)])
    assert simplified(made) == {"Neg": 1}


@each_row("ratio, training, stays", [
    (0.5, False, False), (0.0, True, False), (0.5, True, True), (None, True, True),
])  # fmt: skip
def test_a_dropout_that_drops_stays(ratio, training, stays):
    inputs = ["x", "" if ratio is None else "ratio", "training"]
    stored = [numpy_helper.from_array(np.array(training), "training")]
    stored += [] if ratio is None else [tensor("ratio", fill=ratio)]
    nodes = [node("Dropout", inputs, "a"), node("Neg", ["a"])]
    made = model(nodes, [value("x", [2, 3])], [value("y", None)], stored)
    vetted = gate.vet_model(made.SerializeToString(), Path("m.onnx"), {})
    kinds = [each.op_type for each in clean_model(vetted.model, {})[0].graph.node]
    assert kinds == ["Dropout"] * stays + ["Neg"]


@pytest.mark.parametrize("axes", [[], [0], [1], [0, 1]])
def test_a_sum_keeps_the_axes_that_are_put_back(axes):
    nodes = [
        node("ReduceSum", ["x", "axes"], "a", keepdims=0), node("Unsqueeze", ["a", "axes"]),
    ]  # fmt: skip
    made = model(nodes, [value("x", [3, 4])], [value("y", None)], [ints("axes", *axes)])
    simplified(made, rtol=1e-6)


@each_row("kind, number, left", [
    ("Add", 0.0, True), ("Add", -0.0, False), ("Sub", 0.0, False), ("Sub", -0.0, True),
    ("Mul", 1.0, False), ("Div", 1.0, False), ("Mul", 0.0, True), ("Div", 2.0, True),
])  # fmt: skip
def test_arithmetic_that_keeps_every_number_goes(kind, number, left):
    x = np.array([-0.0, 0.0, 1, np.inf, -np.inf, np.nan, 3e38, 1e-42], "f")
    for operands in (["x", "c"], ["c", "x"])[: 1 if kind in {"Sub", "Div"} else 2]:
        nodes = [node(kind, operands, "a"), node("Reciprocal", ["a"])]
        made = model(nodes, [value("x", [8])], [value("y", None)], [tensor("c", 1, fill=number)])
        assert simplified(made, x=x) == {"Reciprocal": 1} | ({kind: 1} if left else {})


def test_a_one_that_adds_axes_stays():
    made = model(
        [node("Mul", ["x", "c"])],
        [value("x", [3])],
        [value("y", None)],
        [tensor("c", 1, 1, fill=1)],
    )
    assert simplified(made) == {"Mul": 1}


@each_row("down, up", [
    (TensorProto.FLOAT16, TensorProto.FLOAT), (TensorProto.INT32, TensorProto.FLOAT),
    (TensorProto.BOOL, TensorProto.FLOAT), (TensorProto.BFLOAT16, TensorProto.FLOAT),
])  # fmt: skip
def test_a_cast_down_and_up_again_stays(down, up):
    nodes = [node("Cast", ["x"], "a", to=down), node("Cast", ["a"], to=up)]
    made = model(nodes, [value("x", [4])], [value("y", None)])
    x = np.array([70000, 1.0001, -3.7, 0], "f")
    assert simplified(made, x=x) == {"Cast": 2}


def test_joined_axes_are_those_of_both():
    nodes = [
        node("Unsqueeze", ["x", "one"], "a"),
        node("Unsqueeze", ["a", "two"], "b"),
        node("Neg", ["b"]),
    ]
    stored = [ints("one", -1, 0), ints("two", 3, -2)]
    made = model(nodes, [value("x", [2, 3])], [value("y", None)], stored)
    assert simplified(made) == {"Unsqueeze": 1, "Neg": 1}


@each_row("shape, joins", [([6, 4], True), ([-1, 2], True), ([0, 2, -1], False)])
def test_a_zero_in_a_shape_is_a_size_of_what_is_reshaped(shape, joins):
    nodes = [node("Reshape", ["x", "one"], "a"), node("Reshape", ["a", "two"])]
    stored = [ints("one", 3, 8), ints("two", *shape)]
    made = model(nodes, [value("x", [2, 12])], [value("y", None)], stored)
    assert simplified(made) == {"Reshape": 1 if joins else 2}


def test_a_result_that_is_another_result_stays():
    nodes = [
        node("Neg", ["x"], "a"),
        node("Identity", ["a"], "b"),
        node("Identity", ["x"], "c"),
        node("Identity", ["b"], "d"),
    ]
    outputs = [value(name, None) for name in "bcda"]
    made = model(nodes, [value("x", [2])], outputs)
    assert simplified(made) == {"Neg": 1, "Identity": 3}


def test_what_a_branch_does_not_need_goes():
    def branch(kind):
        inner = [
            node("Dropout", ["x"], f"{kind} a"),
            node("Exp", ["x"], f"{kind} dead"),
            node(kind, [f"{kind} a"], f"{kind} result"),
        ]
        return helper.make_graph(inner, kind, [], [value(f"{kind} result", [2])])

    nodes = [
        node("ReduceMax", ["x"], "largest", keepdims=0), node("Greater", ["largest", "zero"], "c"),
        node("If", ["c"], then_branch=branch("Neg"), else_branch=branch("Abs")),
    ]  # fmt: skip
    made = model(nodes, [value("x", [2])], [value("y", [2])], [tensor("zero", fill=0)])
    vetted = gate.vet_model(made.SerializeToString(), Path("m.onnx"), {})
    result, _ = clean_model(vetted.model, {})
    inside = [each.op_type for body in (result.graph.node[-1].attribute) for each in body.g.node]
    assert sorted(inside) == ["Abs", "Neg"]
