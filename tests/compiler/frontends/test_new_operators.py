"""Operators that TVM has no converter for, compared with ONNX's own account of them."""

from functools import partial

import numpy as np
import pytest
from onnx import TensorProto, compose, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.onnx.reading import check_operators
from autopipe.errors import ModelError
from tests.compiler.frontends.models import (
    by_onnx,
    compiled,
    ints,
    model,
    node,
    run,
    save,
    tensor,
    value,
)
from tests.support.table import each_row

NEWEST = 28
"""Where BitShift takes signed numbers."""
MICROSOFT = "com.microsoft"


@pytest.fixture(autouse=True)
def newest_opset(monkeypatch):
    monkeypatch.setattr(check_operators, "MAX_OPSET", max(NEWEST, check_operators.MAX_OPSET))


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def made_bytes(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 255, shape, np.uint8)


def case(kind, inputs, constants=None, outputs=("y",), made_of=None, **attributes):
    """One node: arrays as inputs or, of the same names, as constants; "" is left out.

    Results have the dtype of the first input, that of `made_of`, or with "" what is inferred.
    """
    domain = attributes.get("domain", "")
    names = list(attributes.pop("order", [*inputs, *(constants or {})]))
    made = helper.make_node(kind, names, list(outputs), **attributes)
    stored = [numpy_helper.from_array(np.asarray(v), name) for name, v in (constants or {}).items()]
    given = [
        value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype))
        for name, array in inputs.items()
    ]
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(made_of or next(iter(inputs.values())).dtype))
    results = [value(name, None, dtype) for name in filter(None, outputs)]
    if made_of == "":
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    return helper.make_graph([made], kind, given, results, stored), inputs, domain


def merged(cases, opset):
    """Return all cases as one model, and what it is given: one import, one compilation."""
    whole, feeds = None, dict[str, np.ndarray]()
    for number, (graph, inputs, _) in enumerate(cases):
        part = compose.add_prefix_graph(graph, f"{graph.name}{number}_")
        feeds |= {f"{graph.name}{number}_{name}": array for name, array in inputs.items()}
        if whole is None:
            whole = part
            continue
        for field in ("node", "input", "output", "initializer"):
            getattr(whole, field).extend(getattr(part, field))
    assert whole is not None
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(whole, opset_imports=opsets, ir_version=10), feeds


def check(cases, expected, tmp_path, opset=26, atol=2e-5):
    made, feeds = merged(cases, opset)
    imported = load_model(save(made, tmp_path), {}, None, None)
    results = zip(made.graph.output, compiled(imported, feeds), expected(made, feeds), strict=True)
    for output, ours, reference in results:
        assert ours.dtype == reference.dtype, output.name
        np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=atol, err_msg=output.name)


QUERY, KEY, VALUE = floats(1, 4, 3, 8), floats(1, 2, 5, 8, seed=1), floats(1, 2, 5, 6, seed=2)
HEADS = {"q": QUERY, "k": KEY, "v": VALUE}
SIGNAL = floats(2, 12, 1)
HIDDEN_ROW = np.array([[True] * 5, [False] * 5, [True, False] * 2 + [True]])
ZERO_ROW = np.concatenate([floats(2, 5), np.zeros((1, 5), np.float32)])
PICTURE = floats(1, 4, 5, 6)
OFFSETS = floats(1, 2 * 2 * 4, 4, 5, seed=3)
LABELS = np.array([[0, 2, 1], [2, 2, 0]])
SPECTRUM = floats(2, 7, 2)
CONSTANT_CHANNEL = np.concatenate([floats(2, 3, 4, 4), np.ones((2, 1, 4, 4), np.float32)], 1)
CLASS_WEIGHTS = np.array([1, 2, 3, 4], np.float32)

BODIES = [
    case("Attention", HEADS, is_causal=1),
    case("Attention", HEADS, {"mask": HIDDEN_ROW}, softcap=2.0),
    case(
        "Attention",
        {"q": floats(1, 3, 32), "k": floats(1, 2, 16), "v": floats(1, 2, 16, seed=1),
         "past_k": floats(1, 2, 4, 8), "past_v": floats(1, 2, 4, 8, seed=1)},
        order=["q", "k", "v", "", "past_k", "past_v"], outputs=("y", "all_k", "all_v"),
        q_num_heads=4, kv_num_heads=2,
    ),
    case("Attention", {"q": floats(1, 2, 8)}, {"k": floats(1, 3, 4), "v": floats(1, 3, 2)},
         is_causal=1, left_window_size=2, q_num_heads=2, kv_num_heads=1),  # stored keys and values
    case("RotaryEmbedding", {"x": floats(2, 3, 4, 8), "cos": floats(2, 4, 4),
                             "sin": floats(2, 4, 4, seed=1)}, interleaved=1),
    case("Celu", {"x": floats(3, 4)}, alpha=2.0),
    case("Swish", {"x": floats(3, 4)}, alpha=0.5),
    case("MeanVarianceNormalization", {"x": CONSTANT_CHANNEL}),
    case("NegativeLogLikelihoodLoss", {"x": floats(2, 4, 3)}, {"t": LABELS, "w": CLASS_WEIGHTS},
         ignore_index=2),
    case("SoftmaxCrossEntropyLoss", {"x": floats(2, 4, 3)}, {"t": LABELS},
         outputs=("y", "logs"), reduction="none"),
    case("CenterCropPad", {"x": floats(4, 7, 3)}, {"shape": np.array([6, 3])}, axes=[0, 1]),
    case("DFT", {"x": SIGNAL}, {"n": np.int64(9), "axis": np.int64(1)}, onesided=1),
    case("DFT", {"x": floats(7, 2, 1, 2)}, {"n": np.int64(9), "axis": np.int64(0)}),
    case("DFT", {"x": floats(2, 7, 2)}, inverse=1),
    case("DFT", {"x": SPECTRUM}, {"n": np.int64(12)}, inverse=1, onesided=1),
    case("STFT", {"x": SIGNAL}, {"step": np.int64(3), "window": np.hanning(6).astype(np.float32)}),
    case("STFT", {"x": floats(1, 9, 2)}, {"step": np.int64(2), "n": np.int64(5)},
         order=["x", "step", "", "n"], onesided=0),
]  # fmt: skip

CONVERTERS = [
    case("LpNormalization", {"x": np.abs(ZERO_ROW)}, p=1),  # of others the evaluator forgets a sign
    case("LpNormalization", {"x": ZERO_ROW}, axis=1),
    case("ReverseSequence", {"x": floats(4, 3, 2), "n": np.array([4, 1, 2])}),
    case("CumProd", {"x": floats(3, 4)}, {"axis": np.int64(1)}, exclusive=1, reverse=1),
    case("CumProd", {"x": floats(3, 4)}, {"axis": np.int64(0)}),
    case("TensorScatter", {"x": floats(2, 3, 5, 2), "u": floats(2, 3, 2, 2, seed=1),
                           "at": np.array([4, 1])}, mode="circular"),
    case("TensorScatter", {"x": floats(2, 5, 2), "u": floats(2, 3, 2, seed=1)}),
    case("Det", {"x": floats(2, 3, 3)}),
    case("Det", {"x": floats(4, 4)}),
    case("BitCast", {"x": floats(5)}, made_of="int32", to=TensorProto.INT32),
    case("Compress", {"x": floats(3, 4)}, {"c": np.array([False, True, True])}, axis=0),
    case("Compress", {"x": floats(2, 3)}, {"c": np.array([False, True, False, True])}),
    case("Col2Im", {"x": floats(1, 2 * 6, 6)},
         {"image": np.array([5, 5]), "block": np.array([2, 3])},
         pads=[0, 1, 0, 1], strides=[2, 2]),
    case("DeformConv", {"x": PICTURE, "w": floats(6, 2, 2, 2), "o": OFFSETS, "b": floats(6),
                        "m": floats(1, 2 * 4, 4, 5, seed=4)},
         kernel_shape=[2, 2], group=2, offset_group=2, pads=[0, 0, 0, 0]),
]  # fmt: skip


def test_bodies_compute_what_onnx_says(tmp_path):
    check(BODIES, by_onnx, tmp_path)


def test_converters_compute_what_onnx_says(tmp_path):
    check(CONVERTERS, by_onnx, tmp_path)


def in_bytes(kind, inputs, constants, **attributes):
    return case(kind, inputs, constants, domain=MICROSOFT, **attributes)


def operand(name, zero=120, scale=0.1):
    return {f"{name}_scale": np.float32(scale), f"{name}_zero": np.uint8(zero)}


A, B = made_bytes(1, 2, 3, 4), made_bytes(1, 2, 3, 4, seed=1)
PAIR = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"]
SCALES = operand("a") | operand("b", 100, 0.2) | operand("y", 90, 0.3)
ALONE = ["a", "a_scale", "a_zero", "y_scale", "y_zero"]
ONE = operand("a") | operand("y", 90, 0.02)
MATRIX = np.random.default_rng(2).integers(-127, 127, (8, 5), np.int8)

QUANTIZED = [
    in_bytes("QLinearAdd", {"a": A, "b": B}, SCALES, order=PAIR),
    in_bytes("QLinearMul", {"a": A, "b": B}, SCALES, order=PAIR),
    in_bytes("QLinearSigmoid", {"a": A}, ONE, order=ALONE),
    in_bytes("QLinearLeakyRelu", {"a": A}, ONE, order=ALONE, alpha=0.1),
    in_bytes("QLinearGlobalAveragePool", {"a": A}, ONE, order=ALONE, channels_last=0),
    in_bytes("QLinearAveragePool", {"a": A}, ONE, order=ALONE, kernel_shape=[2, 2]),
    in_bytes("QLinearSoftmax", {"a": A}, operand("a") | operand("y", 0, 1 / 256), order=ALONE,
             axis=-1, opset=13),
    in_bytes("QLinearConcat", {"a": A, "b": B}, SCALES, axis=1,
             order=["y_scale", "y_zero", "a", "a_scale", "a_zero", "b", "b_scale", "b_zero"]),
    in_bytes("QGemm", {"a": made_bytes(3, 8)},
             {"b": MATRIX, "b_scale": np.float32(0.01), "b_zero": np.int8(0),
              "c": np.arange(5, dtype=np.int32) * 99} | operand("a") | operand("y", 90, 0.1),
             order=["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "c", "y_scale", "y_zero"]),
    in_bytes("DynamicQuantizeMatMul", {"x": floats(3, 8)},
             {"b": MATRIX, "s": np.float32(0.01), "z": np.int8(0), "c": floats(5)}),
    case("QLinearMatMul", {"a": made_bytes(3, 8), "b": made_bytes(8, 5, seed=1),
                           "a_scale": np.array([0.1], np.float32),
                           "b_scale": np.array([0.01], np.float32)},
         {"a_zero": np.uint8(100), "b_zero": np.uint8(130)} | operand("y", 90, 0.1), order=PAIR),
]  # fmt: skip


def test_quantized_operators_compute_what_onnxruntime_does(tmp_path):
    check(QUANTIZED, partial(run, level="ENABLE"), tmp_path, opset=17, atol=1.001)


def test_shapes_that_constants_decide(tmp_path):
    table = numpy_helper.from_array(np.array([[0, 3, 0], [5, 0, 3]]), "table")
    nodes = [
        helper.make_node("NonZero", ["table"], ["places"]),
        node("GatherND", ["x", "pairs"]),
        node("Transpose", ["places"], "pairs"),
        helper.make_node("Unique", ["table"], ["found", "first", "back", "counts"], sorted=0),
        node("Mul", ["n", "counts"], "z"),
    ]
    nodes[1], nodes[2] = nodes[2], nodes[1]
    inputs = [value("x", [2, 3]), value("n", [1], TensorProto.INT64)]
    outputs = [value("y", None), value("z", None, TensorProto.INT64)]
    feeds = {"x": floats(2, 3), "n": np.array([2])}
    imported = load_model(save(model(nodes, inputs, outputs, [table]), tmp_path), {}, None, None)
    found = compiled(imported, feeds)
    np.testing.assert_array_equal(found[0], feeds["x"][[0, 1, 1], [1, 0, 2]])
    np.testing.assert_array_equal(found[1], [6, 4, 2])


def test_shifts_by_more_bits_than_there_are(tmp_path):
    signed = {
        "x": np.array([-8, 5, -8, 5, -8], np.int32),
        "n": np.array([32, 40, -1, 1, 2], np.int32),
    }
    plain = {"x": np.array([200, 200, 200], np.uint8), "n": np.array([8, 1, 255], np.uint8)}
    cases = [
        case("BitShift", inputs, direction=direction)
        for inputs in (signed, plain)
        for direction in ("LEFT", "RIGHT")
    ]
    wanted = [[0, 0, 0, 10, -32], [-1, 0, -1, 2, -2], [0, 144, 0], [0, 100, 0]]

    def expected(made, feeds):
        return [
            np.array(each, inputs["x"].dtype)
            for each, (_, inputs, _) in zip(wanted, cases, strict=True)
        ]

    check(cases, expected, tmp_path, opset=NEWEST)


@each_row(
    "kind, inputs, attributes, told",
    [
        ("RandomNormalLike", {"x": floats(3)}, {}, "drawn at random: 1 x RandomNormalLike"),
        ("DFT", {"x": SIGNAL, "n": np.int64(4)}, {}, "length of DFT 'y' is not constant"),
        ("DFT", {"x": np.zeros((9000, 1), np.float32)}, {}, "DFT 'y' has length 9000"),
        (
            "STFT",
            {"x": SIGNAL},
            {"constants": {"step": np.int64(0), "window": floats(6)}},
            "frame step of STFT 'y' is 0; it has to be 1 or more",
        ),
        (
            "STFT",
            {"x": SIGNAL},
            {"constants": {"step": np.int64(3), "n": np.int64(0)}, "order": ["x", "step", "", "n"]},
            "frame length of STFT 'y' is 0; it has to be 1 or more",
        ),
        (
            "DFT",
            {"x": SIGNAL},
            {"constants": {"n": np.int64(-1)}},
            "length of DFT 'y' is -1; it has to be 1 or more",
        ),
        ("Det", {"x": floats(5, 5)}, {}, "5 rows; up to 4 are supported"),
    ],
)
def test_what_can_not_be_is_refused_by_name(tmp_path, kind, inputs, attributes, told):
    made, _ = merged([case(kind, inputs, **attributes)], 23)
    made.graph.node[0].output[0] = made.graph.output[0].name = "y"
    with pytest.raises(ModelError, match=told):
        load_model(save(made, tmp_path), {}, None, None)


def test_a_fourier_transform_of_computed_sizes_is_expanded_once_they_are_known(tmp_path):
    """Padding up to a fixed number of samples, as Whisper's features begin, and a DFT of a Scan."""
    size = [ints("from", 1), ints("most", 20), ints("sides", 0, 0, 0, 0, 1, 0)]
    rate = helper.make_graph(
        [helper.make_node("Mul", ["frame", "half"], ["scaled"])], "body",
        [value("frame", None)], [value("scaled", [1, 4, 2])], [tensor("half", fill=0.5)],
    )  # fmt: skip
    nodes = [
        node("Shape", ["x"], "samples", start=1, end=2),
        node("Sub", ["most", "samples"], "missing"),
        node("Mul", ["missing", "sides"], "pads"),
        node("Pad", ["x", "pads"], "padded"),
        node("STFT", ["padded", "step", "window"], "y"),
        helper.make_node("Scan", ["y"], ["scans"], body=rate, num_scan_inputs=1,
                         scan_input_axes=[1], scan_output_axes=[1]),
        node("DFT", ["scans", "length", "axis"], "z"),
    ]  # fmt: skip
    stored = [*size, tensor("window", 6), *(numpy_helper.from_array(np.array(number), name) for
              name, number in (("step", 4), ("length", 5), ("axis", 1)))]  # fmt: skip
    made = model(nodes, [value("x", [1, 11, 1])], [value("y", None), value("z", None)], stored, 20)
    feeds = {"x": floats(1, 11, 1)}
    imported = load_model(save(made, tmp_path), {}, None, None)
    found = compiled(imported, feeds)
    for ours, theirs in zip(found, run(made, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_step_that_is_computed_is_refused_like_a_stored_one(tmp_path):
    nodes = [node("Sub", ["one", "one"], "step"), node("STFT", ["x", "step", "window"])]
    stored = [numpy_helper.from_array(np.array(1), "one"), tensor("window", 6)]
    made = model(nodes, [value("x", [1, 11, 1])], [value("y", None)], stored)
    with pytest.raises(ModelError, match="frame step of STFT 'STFT of y' is 0; it has to be 1"):
        load_model(save(made, tmp_path), {}, None, None)


def test_a_signal_without_an_axis_of_parts_gets_it_for_every_reference(tmp_path):
    """As exporters write it, and onnxruntime takes it, but not onnx's own evaluator."""
    stored = [numpy_helper.from_array(np.array(4), "step"), tensor("window", 6)]
    transform = node("STFT", ["x", "step", "window"])
    made = model([transform], [value("x", [2, 11])], [value("y", None)], stored)
    feeds = {"x": floats(2, 11)}
    imported = load_model(save(made, tmp_path), {}, None, None)
    assert imported.write_reference is not None
    imported.write_reference(tmp_path)
    (evaluated,) = ReferenceEvaluator(str(tmp_path / "reference.onnx")).run(None, feeds)
    for found in (*compiled(imported, feeds), np.asarray(evaluated)):
        np.testing.assert_allclose(found, run(made, feeds)[0], atol=1e-5)
