"""Operators whose converters are ours because TVM's compute something else than ONNX defines."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import infer_shapes

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.errors import ModelError
from tests.compiler.frontends.models import compiled, ints, model, node, save, tensor, value
from tests.support.table import each_row

NEWEST = 28
INF, NAN = np.inf, np.nan

INPUTS = [
    value("x", [1, 2, 5, 7]),
    value("odd", [6]),
    value("n", [4], TensorProto.INT32),
    value("b", [2, 3], TensorProto.BOOL),
    value("half", [4], TensorProto.FLOAT16),
    value("low", [4]),
    value("rows", [3, 2]),
    value("bytes", [2, 3], TensorProto.UINT8),
    value("small", [1, 1, 2, 2]),
    value("u", [3], TensorProto.UINT64),
]
FEEDS = {
    "x": np.random.default_rng(0).standard_normal((1, 2, 5, 7)).astype("float32"),
    "odd": np.array([-INF, -7.5, 0.0, 2.25, INF, NAN], "float32"),
    "n": np.array([-3, 0, 2, 5], "int32"),
    "b": np.array([[True, False, False], [False, False, False]]),
    "half": np.array([-2.0, -0.5, 0.0, 3.0], "float16"),
    "low": np.array([-30.0, -12.0, -9.5, 3.0], "float32"),
    "rows": np.array([[-INF, -INF], [-INF, 1.0], [-3e38, -INF]], "float32"),
    "bytes": np.array([[0, 100, 255], [7, 8, 9]], "uint8"),
    "small": np.array([[[[1.0, 2.0], [3.0, 4.0]]]], "float32"),
    "u": np.array([3, 2**63 + 5, 7], "uint64"),
}
STORED = [
    tensor("w", 2, 3, 3, 3),
    tensor("scale", 7),
    numpy_helper.from_array(np.array([1.0, 1.0, 0.7, 1.3], "float32"), "scales"),
    numpy_helper.from_array(np.array([0.7, 1.3], "float32"), "two"),
    numpy_helper.from_array(np.array([-0.2, 0.1, 0.9, 1.3], "float32"), "region"),
    numpy_helper.from_array(np.array([2.0, -2.0, 3.0, 3.0, 3.0, 3.0], "float32"), "divisors"),
    numpy_helper.from_array(np.array([[0, 0, 4, 4], [-3, 1, 9, 2]], "float32"), "rois"),
    numpy_helper.from_array(np.array([[0.5, 2.0], [1.0, 0.1]], "float32"), "blocks"),
    numpy_helper.from_array(np.array([[100, 3], [0, 9]], "uint8"), "zeros"),
    numpy_helper.from_array(np.full((1, 2, 5, 3), 1e-3, "float32"), "block_scale"),
    numpy_helper.from_array(np.array(-INF, np.float32), "least"),
    numpy_helper.from_array(np.array(-1, np.int64), "last"),
    numpy_helper.from_array(np.array([[[[5, 7], [13, 15]]]]), "there"),
    ints("batch", 0, 0),
    ints("first_two", 0, 1),
    numpy_helper.from_array(np.array(6, np.int64), "depth"),
    ints("image", 1, 1, 4, 4),
    ints("around", 1, 0, 0, 2),
    ints("no_axes"),
    ints("sizes", 4, 3),
    ints("one", 1),
    numpy_helper.from_array(np.array(3, np.int64), "cube"),
    numpy_helper.from_array(np.array(2.0, np.float32), "square"),
]

CUBIC = {"mode": "cubic"}
NODES = [
    node("Elu", ["odd"], "elu", alpha=2.0),
    node("Selu", ["odd"], "selu"),
    node("Celu", ["half"], "celu", alpha=2.0),
    node("ThresholdedRelu", ["odd"], "above"),
    node("HardSigmoid", ["odd"], "hard"),
    node("Sign", ["odd"], "sign"),
    node("Softplus", ["low"], "softplus"),
    node("Softplus", ["odd"], "softplus_of_odd"),
    node("Mish", ["low"], "mish"),
    node("ReduceMax", ["b"], "computed", keepdims=0),
    node("Pad", ["b", "around", "computed"], "padded"),
    node("Unsqueeze", ["x", "last"], "deeper"),
    node("Gather", ["low", "first_two"], "off_on"),
    node("OneHot", ["n", "depth", "off_on"], "hot", axis=0),
    node("Shape", ["x"], "shape", start=1),
    helper.make_node("TopK", ["u", "one"], ["most", "where"], largest=1),
    node("ReduceL1", ["x"], "of_none", noop_with_empty_axes=1),
    node("ReduceSumSquare", ["x", "no_axes"], "squares", noop_with_empty_axes=1),
    node("ReduceMax", ["rows", "one"], "largest"),  # itself it is the least number
    node("Equal", ["largest", "least"], "hidden"),
    node("ConstantOfShape", ["no_axes"], "nothing"),
    node("Add", ["x", "nothing"], "same"),
    node("RoiAlign", ["x", "rois", "batch"], "aligned", mode="max", sampling_ratio=2,
         output_height=2, output_width=3, spatial_scale=0.7),
    node("RoiAlign", ["x", "rois", "batch"], "averaged", sampling_ratio=2, output_height=2,
         output_width=3, spatial_scale=0.25),
    node("AveragePool", ["x"], "even", kernel_shape=[2, 3], strides=[2, 2],
         auto_pad="SAME_LOWER"),
    helper.make_node("MaxPool", ["x"], ["pooled", "places"], kernel_shape=[3, 2], strides=[2, 1],
                     pads=[1, 0, 1, 1]),
    helper.make_node("MaxPool", ["x"], ["gaps", "by_columns"], kernel_shape=[2, 3],
                     dilations=[2, 1], storage_order=1, auto_pad="SAME_UPPER"),
    node("MaxUnpool", ["small", "there", "image"], "unpooled", kernel_shape=[2, 2], strides=[2, 2]),
    node("DequantizeLinear", ["bytes", "blocks", "zeros"], "numbers", axis=1, block_size=2),
    node("QuantizeLinear", ["x", "block_scale"], "steps", axis=3, block_size=3,
         output_dtype=TensorProto.INT16),
    node("Resize", ["x", "", "scales"], "cubic", **CUBIC),
    node("Resize", ["x", "", "scales"], "sharp", **CUBIC, exclude_outside=1, cubic_coeff_a=-0.5),
    node("Resize", ["x", "", "scales"], "linear", mode="linear"),
    node("Resize", ["x", "", "scales"], "smooth", mode="linear", antialias=1),
    node(
        "Resize", ["x", "", "two"], "centred", mode="linear", axes=[2, 3],
        coordinate_transformation_mode="half_pixel_symmetric",
    ),
    node(
        "Resize", ["x", "", "two"], "corners", mode="linear", axes=[3, 2],
        coordinate_transformation_mode="align_corners",
    ),
    node("Resize", ["x", "", "", "sizes"], "nearest", axes=[3, 2], nearest_mode="ceil"),
    node(
        "Resize", ["x", "region", "", "sizes"], "cropped", mode="linear", axes=[2, 3],
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.0,
    ),
    node("IsInf", ["odd"], "positive", detect_negative=0),
    node("IsInf", ["odd"], "negative", detect_positive=0),
    node("IsInf", ["odd"], "neither", detect_positive=0, detect_negative=0),
    node("Mod", ["odd", "divisors"], "floored"),
    node("Mod", ["odd", "divisors"], "truncated", fmod=1),
    node("Pow", ["n", "cube"], "cubed"),
    node("Pow", ["n", "square"], "squared"),
    node("Cosh", ["x"], "cosh"),
    node("Sinh", ["x"], "sinh"),
    node("EyeLike", ["b"], "eye", dtype=TensorProto.DOUBLE, k=1),
    node("ReduceMax", ["b", "one"], "any", keepdims=0),
    node("ReduceMin", ["b", "one"], "every"),
    node("RMSNormalization", ["x", "scale"], "whole", axis=0),
    helper.make_node("LayerNormalization", ["x", "scale"], ["layer", "mean", "deviation"]),
    helper.make_node("Dropout", ["x"], ["kept", "mask"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def made():
    names = [name for each in NODES for name in each.output if name != "largest"]
    outputs = [helper.make_empty_tensor_value_info(name) for name in names]
    return infer_shapes(model(NODES, INPUTS, outputs, STORED, opset=NEWEST))


def test_operators_compute_what_onnx_defines(made, tmp_path):
    ours = compiled(load_model(save(made, tmp_path), {}, None, None), FEEDS)
    with np.errstate(invalid="ignore"):  # remainders of infinities
        theirs = ReferenceEvaluator(made).run(None, FEEDS)
    for output, found, wanted in zip(made.graph.output, ours, theirs, strict=True):
        expected = np.asarray(wanted)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), output.name
        loose = 1e-2 if expected.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(found, expected, loose, 1e-5, err_msg=output.name)


@each_row(
    "made, said",
    [
        (node("Dropout", ["x", "half", "yes"]), "Dropout with training_mode"),
        (
            node("RoiAlign", ["x", "rois", "batch"], mode="max", sampling_ratio=10**9),
            "takes 1000000000 samples a side, more than 256",
        ),
        (
            node("MaxUnpool", ["x", "places", "larger"], kernel_shape=[2, 2]),
            "'MaxUnpool of y' to another shape than",
        ),
    ],
)
def test_what_is_not_computed_as_onnx_defines_it_is_refused_by_name(made, said, tmp_path):
    stored = [
        numpy_helper.from_array(np.array(0.5, np.float32), "half"),
        numpy_helper.from_array(np.ones((), "bool"), "yes"),
        numpy_helper.from_array(np.array([[0, 0, 1, 1]], "float32"), "rois"),
        ints("batch", 0),
        ints("larger", 1, 2, 7, 9),
    ]
    places = value("places", [1, 2, 5, 7], TensorProto.INT64)
    outputs = [helper.make_empty_tensor_value_info(name) for name in made.output]
    refused = infer_shapes(model([made], [INPUTS[0], places], outputs, stored, opset=NEWEST))
    with pytest.raises(ModelError, match=said):
        load_model(save(refused, tmp_path), {}, None, None)
