"""Nodes of a model whose sizes are open, against onnxruntime at several sizes."""

# mypy: disable-error-code="call-overload,arg-type,misc"
# ruff: noqa: E501

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from autopipe.compiler import lowering
from autopipe.compiler.dynamic_sizes import kernel_sizes
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.library import build
from autopipe.compiler.library.evaluate_weights import evaluate_weights
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.target.target import make_host_target
from autopipe.config.dimension import Dimension
from autopipe.config.model import Input
from autopipe.errors import ConfigError, ModelError
from tests.compiler import graphs
from tests.compiler.frontends.models import run
from tests.support.table import each_row

DIMENSIONS = {
    "height": Dimension(min=8, max=64, multiple=8, likely=(16,)),
    "width": Dimension(min=5, max=40, likely=(7,)),
}
SHAPE = (2, 4, "height", "width")
SIZES = [{"height": 8, "width": 5}, {"height": 24, "width": 6}, {"height": 16, "width": 23}]


def node(kind, *inputs, out="y", **attributes):
    return helper.make_node(kind, inputs, [out], **attributes)


def branch(only):
    result = helper.make_tensor_value_info(only.output[0], TensorProto.FLOAT, None)
    return helper.make_graph([only], only.output[0], [], [result])


def whole(*numbers):
    return np.array(numbers, np.int64)


def saved(folder, nodes, weights, outputs=("y",), *, opset=17):
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list("nchw"))]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    for result in results:
        result.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph(nodes, "open", inputs, results, tensors)
    path = folder / "model.onnx"
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def imported(path):
    return load_model(path, {"x": Input(shape=SHAPE)}, None, None, DIMENSIONS)


FULL = [
    ("scaled up", [node("Resize", "x", "", "scales", mode="nearest", out="a")]),
    ("halves of rows", [node("Resize", "x", "", "half", mode="linear", out="b")]),
    ("as an image of 9", [
        node("Shape", "x", out="c1"), node("Slice", "c1", "zero", "two", out="c2"),
        node("Concat", "c2", "nine", axis=0, out="c3"),
        node("Resize", "x", "", "", "c3", mode="cubic", out="c"),
    ]),
    ("pooled up", [node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1,
                        pads=[1, 1, 1, 1], out="d")]),
    ("pooled to the same", [node("AveragePool", "x", kernel_shape=[3, 1], strides=[2, 1],
                                 auto_pad="SAME_UPPER", out="e")]),
    ("padded", [node("Pad", "x", "pads", mode="reflect", out="f")]),
    ("cut at both ends", [node("Slice", "x", "starts", "ends", "axes", "steps", out="g")]),
    ("backwards", [node("Slice", "x", "last", "least", "three", "back", out="h")]),
    ("cut beyond the end", [node("Slice", "x", "zero", "ten", "three", out="i")]),
    ("flat and back", [
        node("Shape", "x", out="j1"), node("Gather", "j1", "rows", axis=0, out="j2"),
        node("Gather", "j1", "two0", axis=0, out="j3"), node("Mul", "j2", "j3", out="j4"),
        node("Concat", "flat", "j4", axis=0, out="j5"), node("Reshape", "x", "j5", out="j"),
    ]),
    ("spread", [
        node("Shape", "x", out="k1"), node("ReduceMean", "x", axes=[2, 3], out="k2"),
        node("Expand", "k2", "k1", out="k"),
    ]),
    ("counted", [
        node("Shape", "x", out="l1"), node("Gather", "l1", "three0", axis=0, out="l2"),
        node("Range", "zero0", "l2", "one0", out="l3"), node("Cast", "l3", to=1, out="l4"),
        node("Add", "x", "l4", out="l"),
    ]),
    ("sums of all before", [node("CumSum", "x", "three0", out="m")]),
    ("the best", [helper.make_node("TopK", ["x", "two"], ["n", "n2"], axis=3)]),
    ("split", [helper.make_node("Split", ["x"], ["o", "p"], axis=2)]),
    ("filled", [
        node("Shape", "x", out="q1"), node("ConstantOfShape", "q1", out="q2"),
        node("Add", "x", "q2", out="q"),
    ]),
    ("filled with what is no number", [
        node("ConstantOfShape", "q1", value=numpy_helper.from_array(np.float32([-np.inf])), out="aa1"),
        node("Max", "x", "aa1", out="aa"),
    ]),
    ("a unit matrix", [
        node("OneHot", "l3", "l2", "ends_of_one", axis=0, out="ab1"), node("MatMul", "x", "ab1", out="ab"),
    ]),
    ("a pass over columns", [
        node("ReduceMean", "x", axes=[2], keepdims=0, out="r1"),
        node("Transpose", "r1", perm=[2, 0, 1], out="r2"),
        helper.make_node("LSTM", ["r2", "w", "r"], ["r3", "r4"], hidden_size=3,
                         direction="bidirectional"),
        node("Identity", "r3", out="s"),
    ]),
    ("counted from another size", [  # one kernel takes it as a number, where it is an extent, too
        node("Shape", "x", out="t1"), node("Gather", "t1", "two_", axis=0, out="t2"),
        node("Gather", "t1", "three0", axis=0, out="t3"), node("Add", "t2", "t3", out="t4"),
        node("Range", "t2", "t4", "one0", out="t5"), node("Cast", "t5", to=1, out="t6"),
        node("Add", "x", "t6", out="t"),
    ]),
    ("halves", [  # that half is no more than the whole, only trying tells
        node("Slice", "t1", "three", "four", out="u1"), node("Div", "u1", "two", out="u2"),
        node("Slice", "x", "zero", "u2", "three", out="u3"), node("Mul", "u2", "two", out="u4"),
        node("Slice", "x", "u2", "u4", "three", out="u5"), node("Mul", "u3", "u5", out="u"),
    ]),
    ("one window at every size", [
        node("MaxPool", "x", kernel_shape=[1, 5], strides=[1, 40], out="v1"),
        node("Squeeze", "v1", "three", out="v"),
    ]),
    ("a state of zeros", [
        node("Shape", "r4", out="x2"), node("ConstantOfShape", "x2", out="x3"),
        helper.make_node("LSTM", ["r2", "w", "r", "", "", "x3"], ["x4"], hidden_size=3, direction="bidirectional"),
    ]),
    ("backwards, as far as lengths say", [
        node("Slice", "t1", "two", "three", out="y1"), node("Expand", "two", "y1", out="y2"),
        node("Transpose", "x", perm=[2, 3, 0, 1], out="y4"),
        node("ReverseSequence", "y4", "y2", batch_axis=0, time_axis=1, out="y3"),
    ]),
    ("written to open places", [
        node("Mul", "l4", "l4", out="z1"), node("ScatterElements", "l4", "l3", "z1", out="z2"),
        node("Add", "x", "z2", out="z3"),
    ]),
    ("asked if there is one window", [
        node("Shape", "v1", out="w1"), node("Gather", "w1", "three0", axis=0, out="w2"),
        node("Equal", "w2", "one0", out="w3"), node("Cast", "w3", to=TensorProto.BOOL, out="w4"),
        node("If", "w4", out="w5", then_branch=branch(node("Squeeze", "v1", "three", out="then")),
             else_branch=branch(node("Identity", "v1", out="else"))),
        node("Identity", "w5", out="w6"),
    ]),
    ("frames of a signal", [
        node("Reshape", "x", "signals", out="ac1"), node("STFT", "ac1", "three0", "hann", out="ac"),
        node("STFT", "ac1", "three0", "", "five0", onesided=0, out="ad"),
    ]),
    ("frequencies of each place", [
        node("Unsqueeze", "x", "last", out="ae1"), node("DFT", "ae1", axis=1, out="ae"),
    ]),
]  # fmt: skip
WEIGHTS = {
    "ends_of_one": np.array([0, 1], np.float32), "scales": np.array([1, 1, 2, 3], np.float32), "half": np.array([1, 1, 0.5, 1], np.float32),
    "zero": whole(0), "one": whole(1), "two": whole(2), "three": whole(3), "ten": whole(10),
    "nine": whole(9, 9), "pads": whole(0, 0, 2, 1, 0, 0, 3, 2), "starts": whole(-7, 1),
    "ends": whole(2**40, -1), "axes": whole(2, 3), "steps": whole(2, 1), "last": whole(-1),
    "least": whole(-(2**40)), "back": whole(-2), "rows": whole(2), "two0": whole(3),
    "three0": np.int64(3), "zero0": np.int64(0), "one0": np.int64(1), "two_": np.int64(2), "four": whole(4), "flat": whole(2, 4),
    "signals": whole(2, -1, 1), "hann": np.hanning(6).astype("f"), "five0": np.int64(5),
    "w": np.linspace(-1, 1, 2 * 12 * 4, dtype=np.float32).reshape(2, 12, 4),
    "r": np.linspace(1, -1, 2 * 12 * 3, dtype=np.float32).reshape(2, 12, 3),
}  # fmt: skip
OUTPUTS = (*"abcdefghijklmnopqstuv", "aa", "ab", "ac", "ad", "ae", "w6", "x4", "y3", "z3")


def compare_at_every_size(path, outputs, reference):
    """Compare a model with what onnxruntime computes of a reference model."""
    model, target = imported(path), make_host_target(1)
    optimized = lowering.optimize(model.module, 2, {}, target, print)
    lowered = lowering.lower(optimized.module, target)
    plain = {name: tvm.IRModule({"main": function}) for name, function in list_prim_funcs(lowered)}
    built = build.build_library(lowered, plain, target)
    values = list(model.weights.values())
    for work in (optimized.transform, built.packing):
        values = evaluate_weights(work, values, target, lambda module: module)
    main = relax.VirtualMachine(built.executable, tvm.cpu())["main"]
    random = np.random.default_rng(0)
    for sizes in SIZES:
        x = random.standard_normal([sizes.get(each, each) for each in SHAPE], "f")
        counts = kernel_sizes.count_multiples(DIMENSIONS, sizes).values()
        given = [tvm.runtime.tensor(np.asarray(each)) for each in (x, *values)]
        results = main(given[0], tvm.runtime.ShapeTuple(list(counts)), *given[1:])
        results = results if len(outputs) > 1 else [results]
        expected = run(reference, {"x": x})
        for name, ours, wanted in zip(outputs, results, expected, strict=True):
            assert ours.numpy().shape == wanted.shape, name
            np.testing.assert_allclose(ours.numpy(), wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def test_nodes_compute_what_onnxruntime_does_at_every_size(tmp_path):
    path = saved(tmp_path, [each for _, nodes in FULL for each in nodes], WEIGHTS, OUTPUTS)
    compare_at_every_size(path, OUTPUTS, path)


ENLARGED = [
    (f"{place} {rounding}", place, rounding)
    for place in ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
    for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
]


def test_nearest_neighbours_are_repeated_where_that_is_the_same(tmp_path):
    nodes = [
        node("Resize", "x", "", "scales", mode="nearest", coordinate_transformation_mode=place,
             nearest_mode=rounding, out=name)
        for name, place, rounding in ENLARGED
    ]  # fmt: skip
    names = [name for name, *_ in ENLARGED]
    path = saved(tmp_path, nodes, WEIGHTS, names)
    compare_at_every_size(path, names, path)
    repeats = imported(path).module["main"].script().count("R.repeat(")
    # whole pixels rounded down, and the centres of pixels rounded to the nearest one
    assert repeats == 2 * (1 + 2 + 2)


def test_a_layout_goes_through_repeated_neighbours_and_constants_of_one_element(tmp_path):
    kernel = np.ones((4, 4, 1, 1), np.float32)
    nodes = [
        node("Conv", "x", "kernel", out="a"), node("Max", "a", "least", out="b"),
        node("Resize", "b", "", "scales", mode="nearest", coordinate_transformation_mode="asymmetric",
             nearest_mode="floor", out="c"),
        node("Conv", "c", "kernel"),
    ]  # fmt: skip
    path = saved(tmp_path, nodes, WEIGHTS | {"kernel": kernel, "least": np.float32([3])})
    module = imported(path).module
    target = make_host_target(1)
    optimized = lowering.optimize(module, 2, graphs.NHWC, target, print).module
    text = optimized["main"].script()
    assert text.count("permute_dims") == 2
    assert "R.const(3.0" in text


@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_product_of_a_shape_takes_its_axis_as_a_scalar(tmp_path, keepdims):
    nodes = [
        node("Shape", "x", out="a"), node("ReduceProd", "a", "axes", keepdims=keepdims, out="b"),
        node("Reshape", "b", "one", out="c"), node("Reshape", "x", "c"),
    ]  # fmt: skip
    paths = []
    for name, axes in {"scalar": np.int64(0), "vector": whole(0)}.items():
        (tmp_path / name).mkdir()
        weights = {"axes": axes, "one": whole(1)}
        paths.append(saved(tmp_path / name, nodes, weights, opset=18))
    scalar, vector = paths
    compare_at_every_size(scalar, ["y"], vector)  # onnxruntime refuses a scalar


REFUSED = [
    ([node("Resize", "x", "", "half", mode="linear", coordinate_transformation_mode="tf_crop_and_resize")],
     "a number for height"),
    ([node("Resize", "x", "", "never", mode="nearest")], "by 0.0: a scale has to be above 0"),
    ([node("Resize", "x", "", "least", mode="nearest")], "Resize 'y' by 1.4.*e-45: a scale has to be"),
    ([helper.make_node("TopK", ["x", "ten"], ["y", "z"], axis=3)], "TopK"),
    ([node("MaxPool", "x", kernel_shape=[1, 3], strides=[1, 2], auto_pad="SAME_UPPER")],
     "a multiple of 2; .*for width"),
    ([node("Reshape", "x", "signals", out="a1"), node("STFT", "a1", "three0")],
     "STFT 'y' has one frame, as long as its signal, which is dynamic"),
    ([node("Shape", "x", out="a1"), node("Slice", "a1", "three", "four", out="a2"),
      node("Div", "a2", "two", out="a3"), node("Slice", "x", "zero", "a3", "three", out="a4"),
      node("MaxPool", "a4", kernel_shape=[1, 2], strides=[1, 15], out="a5"),
      node("Squeeze", "a5", "three")], "one element at some sizes only.*for width"),
    ([node("ReverseSequence", "x", "two", batch_axis=2, time_axis=3)], "1 lengths for a batch of"),
]  # fmt: skip


@each_row("nodes, told", REFUSED)
def test_what_can_not_be_open_is_refused_in_a_line(tmp_path, nodes, told):
    more = {
        "never": np.array([1, 1, 1, 0], np.float32),
        "least": np.array([1, 1, 1, 1e-45], np.float32),
    }
    with pytest.raises(ModelError, match=told) as caught:
        imported(saved(tmp_path, nodes, WEIGHTS | more))
    assert "\n" not in str(caught.value)


def _any(low, high, likely, multiple=1):
    return Dimension(min=low, max=high, multiple=multiple, likely=(likely,))


GROUPS = [node("Reshape", "x", "groups")]
SUM = [node("Add", "x", "two")]


@pytest.mark.fault("A16")
@each_row(
    "shape, given, nodes, why",
    [
        (("n", 3, 4), {"n": _any(1, 8, 4)}, SUM, "has 3 dimensions, the model has 4"),
        (("n", "n", 4, 1), {"n": _any(1, 8, 4)}, GROUPS, "incompatible shapes; another range, or a multiple"),
        (("n", 8, 4, 1), {"n": _any(3, 30, 12)}, GROUPS, "with n = 4: (op_type:Reshape, node name: y)"),
        (("n", 8, 4, 1), {"n": _any(6, 30, 12, 2)}, GROUPS, "with n = 8: (op_type:Reshape, node name: y)"),
        ((2, 4, "n", "n"), {"n": _any(1, 9, 8)}, [node("Conv", "x", "five")],
         "with n = 1: value 'y' has a negative dimension: [2, 4, -3, -3]; another range"),
        ((2, 4, "n", 9), {"n": _any(4, 9, 8)}, [node("Conv", "x", "five", strides=[5, 5])],
         "with n = 4: Conv 'y' has a window of 5 over 4; another range"),
        ((2, 4, "n", 9), {"n": _any(1, 9, 8)},
         [node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, out="p"),
          node("MaxPool", "p", kernel_shape=[2, 2])],
         "with n = 1: MaxPool 'y' has a window of 2 over 1; another range"),
        ((2, 4, "n", 9), {"n": _any(2, 9, 8)}, [node("Pad", "x", "border", mode="reflect")],
         "with n = 2: Pad 'y' reflects 3 of 2; another range"),
        ((2, 1, "n", 1), {"n": _any(4, 30, 12)},
         [node("Reshape", "x", "signals", out="s"), node("STFT", "s", "four0", "hann")],
         "with n = 4: STFT 'y' has frames of 6 over 4 samples; another range"),
        ((1, 1, "n", 1), {"n": _any(1, 2**31, 8)}, SUM, "with n = 2147483648: "),
        ((2, 4, "n", "m"), {"n": _any(1, 9, 8), "m": _any(1, 9, 8)},
         [node("Transpose", "x", perm=[0, 1, 3, 2], out="t"), node("Add", "x", "t")],
         "[2, 4, n, m], [2, 4, m, n]: what comes out"),
    ],
)  # fmt: skip
def test_ranges_that_contradict_the_model_are_refused_in_a_line(
    tmp_path_factory, shape, given, nodes, why
):
    weights = {
        "groups": whole(-1, 3, 32), "two": np.ones((1, 1, 1, 2), np.float32),
        "five": np.ones((4, 4, 5, 5), np.float32), "signals": whole(2, -1, 1),
        "four0": np.int64(4), "hann": np.hanning(6).astype("f"), "border": whole(0, 0, 3, 0, 0, 0, 0, 0),
    }  # fmt: skip
    path = saved(tmp_path_factory.mktemp("refused"), nodes, weights)
    with pytest.raises((ConfigError, ModelError)) as caught:
        load_model(path, {"x": Input(shape=shape)}, None, None, given)
    assert why in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code in (2, 3)
