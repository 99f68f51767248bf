"""Forms of operators that are valid and rare, compared with onnxruntime."""

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.library.loaded_model import allocate_aligned
from autopipe.compiler.passes.inline_scalars import inline_scalars
from autopipe.errors import ModelError
from tests.compiler.frontends.models import compiled, ints, model, node, run, save, value
from tests.compiler.frontends.test_new_operators import MICROSOFT, case, check, floats, merged
from tests.support.table import each_row

INF = np.inf
FAR = np.array([-INF, -3e38, -90, -89.2, -0.0, 0.25, 89.2, 90, INF], np.float32)
LEAST = np.iinfo(np.int64).min
NONE = np.zeros(0, np.int64)
SQUARE = floats(4, 5)
INTEGERS = np.array([[-7, 2, 4], [5, -9, 1]], np.int32)
BOOLS = np.array([True, False, True]), np.array([True, True, False])
PICTURE = floats(1, 2, 8, 7)
PLANES = floats(2, 3, 4)
MOST_OF_NONE = np.full((2, 1, 4), -INF)


def one(number, dtype=np.int64):
    return np.array(number, dtype)


def slicing(data, start, end, step=1, axis=0):
    numbers = {"s": start, "e": end, "a": axis, "t": step}
    return case("Slice", {"x": data}, {name: one([n]) for name, n in numbers.items()})


OPSET_18 = [
    case("Clip", {"x": FAR}, {"high": np.float32(0.3)}, order=["x", "", "high"]),
    case("Clip", {"x": FAR}, {"low": np.float32(0.3)}),
    case("Clip", {"x": FAR}),
    case("Cosh", {"x": FAR}),
    case("Sinh", {"x": FAR}),
    case("ReduceMean", {"x": INTEGERS}, {"a": one([1])}, keepdims=0),
    case("ReduceMean", {"x": np.array([2**31 - 1, 2**31 - 3], np.int32)}),
    case("Pow", {"x": INTEGERS}, {"z": one([[[2]]])}),
    case("Pow", {"x": SQUARE}, {"z": np.array([[[2]]], np.float32)}),
    case("Pow", {"x": SQUARE}, {"z": one([[[2]]])}),
    case("ReduceL2", {"x": INTEGERS}, {"a": one([1])}),
    case("ReduceSum", {"x": SQUARE}, {"a": NONE}),
    case("ReduceSum", {"x": SQUARE}, {"a": NONE}, noop_with_empty_axes=1),
    case("ReduceLogSumExp", {"x": np.full((2, 3), -INF, np.float32)}, {"a": one([1])}),
    slicing(SQUARE, -100, -200, -1, axis=1),
    slicing(SQUARE, 100, -100),
    slicing(SQUARE, LEAST, 2**63 - 1, 2**63 - 1),
    slicing(SQUARE, 2**63 - 1, LEAST, -3),
    slicing(SQUARE, -1, LEAST, LEAST, axis=1),
    case("Trilu", {"x": SQUARE}, {"k": one(2**62)}),
    case("Trilu", {"x": SQUARE}, {"k": one(LEAST)}, upper=1),
    case("Trilu", {"x": SQUARE}, {"k": one(LEAST)}, upper=0),
    case("LpPool", {"x": PICTURE}, kernel_shape=[2, 3], p=1, dilations=[2, 2], strides=[2, 2],
         ceil_mode=1),
    case("LpPool", {"x": PICTURE}, kernel_shape=[3, 3], p=3, strides=[2, 2], pads=[1, 0, 1, 1]),
    case("Pad", {"x": SQUARE}, {"p": one([-1, 0, 2, -2])}, mode="reflect"),
    case("Pad", {"x": SQUARE}, {"p": one([0, 2, -2, -1])}, mode="edge"),
    case("Equal", {"x": BOOLS[0], "z": BOOLS[1]}),
    case("Equal", {"x": BOOLS[0]}, {"z": BOOLS[1]}),
    case("Split", {"x": SQUARE}, {"parts": one([1, 0, 3])}, outputs=("u", "v", "w")),
    case("TopK", {"x": INTEGERS}, {"k": one([0])}, outputs=("v", "i"), made_of=""),
    case("ArgMax", {"x": np.zeros((2, 3), np.uint8)}, axis=1, made_of="int64"),
    case("ArgMin", {"x": np.full((2, 3), 127, np.int8)}, axis=1, select_last_index=1,
         made_of="int64"),
    case("Celu", {"x": FAR}, alpha=0.5),
    case("Celu", {"x": one(-0.5, np.float32)}),
    case("Shrink", {"x": INTEGERS}, bias=1.5, lambd=1.0),
    case("PRelu", {"x": INTEGERS}, {"slope": one([3], np.int32)}),
    case("OneHot", {"x": one([[1.0, -1.0, 9.0]], np.float32)},
         {"depth": one(3), "values": one([2, 5])}, axis=-2, made_of="int64"),
    case("LayerNormalization", {"x": floats(2, 3, 4)}, {"s": floats(4), "b": floats(3, 4)}, axis=1),
    case("LayerNormalization", {"x": floats(2, 3, 4).astype("float64")},
         {"s": floats(1, 4).astype("float64")}, axis=1),
    case("SkipLayerNormalization", {"x": floats(2, 3, 8), "k": floats(2, 3, 8, seed=1)},
         {"g": floats(8), "b": floats(8, seed=2), "c": floats(8, seed=3)},
         outputs=("y", "", "", "s"), domain=MICROSOFT),
    case("SkipLayerNormalization", {"x": floats(2, 3, 8), "k": floats(2, 3, 8, seed=1)},
         {"g": floats(8)}, domain=MICROSOFT),
    case("GroupNormalization", {"x": floats(2, 6, 3)}, {"s": floats(3), "b": floats(3)},
         num_groups=3),
]  # fmt: skip


def test_rare_forms_compute_what_onnxruntime_does(tmp_path):
    check(OPSET_18, run, tmp_path, opset=18)


def test_a_slope_of_zero_makes_no_number_of_infinity(tmp_path):
    made = model(
        [node("LeakyRelu", ["x"], "y", alpha=0.0)], [value("x", FAR.shape)], [value("y", None)]
    )
    imported = load_model(save(made, tmp_path), {}, None, None)
    y = compiled(dataclasses.replace(imported, module=inline_scalars(imported.module)), {"x": FAR})
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(y[0], np.where(FAR < 0, np.float32(0) * FAR, FAR))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("ReduceMax", ["x"], "r", axes=[1])], MOST_OF_NONE),
        ([node("ReduceSum", ["x", "axis"], "s"), node("Log", ["s"], "r")], MOST_OF_NONE),
        ([node("Transpose", ["x"], "r", perm=[2, 1, 0])], np.zeros((4, 0, 2))),
        ([node("Concat", ["x", "z"], "c", axis=1), node("Neg", ["c"], "r")], -PLANES),
        ([node("Sigmoid", ["x"], "e"), node("ReduceProd", ["e"], "p", axes=[1]),
          node("Mul", ["z", "p"], "r")], PLANES),
    ],
)  # fmt: skip
def test_an_input_may_have_no_elements(tmp_path, nodes, expected):
    inputs = [value("x", (2, 0, 4)), value("z", PLANES.shape)]
    axis = numpy_helper.from_array(one([1]), "axis")
    made = model(nodes, inputs, [value("r", expected.shape)], [axis])
    imported = load_model(save(made, tmp_path), {}, None, None)
    feeds = {"x": allocate_aligned((2, 0, 4), "float32"), "z": PLANES}
    np.testing.assert_array_equal(compiled(imported, feeds)[0], expected.astype("float32"))


@pytest.mark.parametrize(
    ("opset", "cases"),
    [
        (19, [case("Pad", {"x": SQUARE}, {"p": one([-1, 0, 2, 1])}, mode="wrap")]),
        (9, [case("Clip", {"x": FAR}, max=0.5)]),
        (10, [case("TopK", {"x": SQUARE}, {"k": one([3])}, outputs=("v", "i"), made_of="")]),
        (10, [case("Resize", {"x": floats(1, 2, 5, 5)},
                   {"scales": np.array([1, 1, 0.7, 3], np.float32)}),
              case("Resize", {"x": floats(1, 2, 5, 5)},
                   {"scales": np.array([1, 1, 0.7, 3], np.float32)}, mode="linear")]),
        (11, [case("Resize", {"x": floats(1, 1, 4, 5)},
                   {"e": np.zeros(0, np.float32), "sizes": one([1, 1, 7, 3])},
                   order=["x", "e", "e", "sizes"], mode="linear")]),
        (21, [case("GroupNormalization", {"x": floats(2, 6, 3).astype(np.float64)},
                   {"s": floats(6).astype("float64"), "b": floats(6).astype("float64")},
                   num_groups=3)]),
        (23, [case("RMSNormalization", {"x": floats(4, 2, 2)}, {"s": floats(1)}, axis=1),
              case("RMSNormalization", {"x": floats(4, 2, 2).astype("float64")},
                   {"s": floats(2).astype("float64")})]),
    ],
)  # fmt: skip
def test_rare_forms_of_other_opsets(opset, cases, tmp_path):
    check(cases, run, tmp_path, opset=opset)


@each_row(
    "dtype, wanted",
    [
        ("int32", [-(2**31)] * 3 + [-3, 2**31 - 128, -(2**31)]),
        ("int64", [LEAST] * 3 + [-3, 2**31 - 128, 3 * 10**9]),
        ("int8", [0, 0, 0, -3, -128, 0]),
        ("uint8", [0, 0, 0, 253, 128, 0]),
        ("uint32", [0, 0, 0, 2**32 - 3, 2**31 - 128, 3 * 10**9]),
    ],
)
def test_floats_that_no_integer_is_near_become_the_least_one(dtype, wanted, tmp_path):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    data = np.array([np.nan, INF, -INF, -3.9, 2**31 - 128, 3e9], np.float32)
    made = model([node("Cast", ["x"], to=kind)], [value("x", [6])], [value("y", [6], kind)])
    (found,) = compiled(load_model(save(made, tmp_path), {}, None, None), {"x": data})
    np.testing.assert_array_equal(found, np.array(wanted, dtype))


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_integers_of_four_bits_are_computed_in_eight(kind, tmp_path):
    nodes = [node("Cast", ["x"], "small", to=kind), node("Cast", ["small"], to=TensorProto.FLOAT)]
    made = model(nodes, [value("x", [5])], [value("y", [5])], opset=21)
    made.ir_version = 10
    data = np.array([1, 3, 0, 7, 5], np.float32)
    (found,) = compiled(load_model(save(made, tmp_path), {}, None, None), {"x": data})
    np.testing.assert_array_equal(found, data)


@each_row(
    "kind, identity",
    [("ReduceSum", 0), ("ReduceProd", 1), ("ReduceMax", -INF), ("ReduceMin", INF),
     ("ReduceL2", 0), ("ReduceLogSum", -INF), ("ReduceLogSumExp", -INF)],
)  # fmt: skip
def test_a_reduction_of_nothing_is_its_identity(kind, identity, tmp_path):
    stored = [ints("two", 2), ints("zero", 0)]
    nodes = [node("Slice", ["x", "two", "two", "zero"], "nothing"),
             node(kind, ["nothing", "zero"], "sum", keepdims=0),
             node("Add", ["sum", "row"])]  # fmt: skip
    inputs = [value("x", [3, 4]), value("row", [4])]
    made = model(nodes, inputs, [value("y", [4])], stored, opset=18)
    feeds = {"x": floats(3, 4), "row": floats(4)}
    (found,) = compiled(load_model(save(made, tmp_path), {}, None, None), feeds)
    np.testing.assert_array_equal(found, identity + floats(4))


def test_a_result_that_is_constant_is_no_weight(tmp_path):
    stored = [ints("two", 2), ints("zero", 0)]
    nodes = [node("Slice", ["x", "two", "two", "zero"], "nothing"),
             node("ReduceSum", ["nothing", "zero"], keepdims=0)]  # fmt: skip
    made = model(nodes, [value("x", [3, 4])], [value("y", None)], stored)
    imported = load_model(save(made, tmp_path), {}, None, None)
    assert imported.weights == {}
    np.testing.assert_array_equal(compiled(imported, {"x": floats(3, 4)})[0], np.zeros(4))


RUNTIME = [
    ([1], [2**63 - 1], [0], [1]),
    ([-100], [3], [0], [1]),
    ([4], [-100], [1], [-1]),
    ([LEAST], [LEAST], [0], [-1]),
    ([5, -2], [100, 100], [0, 1], [2, 1]),
    ([3], [2], [1], [1]),
]


@pytest.mark.parametrize("computed", [("s",), ("e",), ("s", "e")])
def test_slices_by_computed_ends(computed, tmp_path):
    cases = []
    for numbers in RUNTIME:
        arrays = {name: np.array(each) for name, each in zip("seat", numbers, strict=True)}
        given = {"x": floats(6, 5)} | {name: arrays.pop(name) for name in computed}
        cases.append(case("Slice", given, arrays, order=["x", "s", "e", "a", "t"]))
    made, feeds = merged(cases, 18)
    imported = load_model(save(made, tmp_path), {}, None, None)
    for ours, reference in zip(compiled(imported, feeds), run(made, feeds), strict=True):
        np.testing.assert_array_equal(ours, reference)


def test_a_product_over_no_elements_and_a_part_of_none(tmp_path):
    stored = [ints("two", 2), ints("zero", 0)]
    nodes = [node("Slice", ["x", "two", "two", "zero"], "nothing"),
             node("Transpose", ["nothing"], "turned", perm=[1, 0]),
             node("MatMul", ["turned", "nothing"], "y"),
             node("Concat", ["nothing", "x"], "z", axis=0)]  # fmt: skip
    made = model(nodes, [value("x", [3, 4])], [value("y", None), value("z", None)], stored)
    zeros, same = compiled(load_model(save(made, tmp_path), {}, None, None), {"x": floats(3, 4)})
    np.testing.assert_array_equal(zeros, np.zeros((4, 4)))
    np.testing.assert_array_equal(same, floats(3, 4))


@each_row("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_constants_and_initializers_are_dense(indices, tmp_path):
    values = numpy_helper.from_array(np.array([5, 7], np.float32), "stored")
    sparse = helper.make_sparse_tensor(values, ints("places", *indices), [2, 3])
    if np.array(indices).ndim > 1:
        sparse.indices.CopyFrom(numpy_helper.from_array(np.array(indices), "places"))
    nodes = [helper.make_node("Constant", [], ["c"], sparse_value=sparse),
             node("Add", ["x", "c"], "sum"), node("Add", ["sum", "stored"])]  # fmt: skip
    made = model(nodes, [value("x", [2, 3])], [value("y", [2, 3])])
    made.graph.sparse_initializer.append(sparse)
    (found,) = compiled(load_model(save(made, tmp_path), {}, None, None), {"x": floats(2, 3)})
    np.testing.assert_allclose(found - floats(2, 3), [[0, 10, 0], [0, 0, 14]], atol=1e-5)


@each_row("places", [[6], [-1], [1, 2]])
def test_sparse_indices_that_do_not_fit_are_refused(places, tmp_path):
    values = numpy_helper.from_array(np.array([5], np.float32), "stored")
    made = model([node("Add", ["x", "stored"])], [value("x", [2, 3])], [value("y", [2, 3])])
    sparse = helper.make_sparse_tensor(values, ints("places", 0), [2, 3])
    sparse.indices.CopyFrom(ints("places", *places))
    made.graph.sparse_initializer.append(sparse)
    with pytest.raises(ModelError, match="'stored' has indices that do not fit"):
        load_model(save(made, tmp_path), {}, None, None)


def test_a_function_of_another_opset_has_the_operators_of_the_model(tmp_path):
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    relu = helper.make_node("Relu", ["x"], ["y"])
    older = helper.make_opsetid("", 13)
    body = helper.make_function("local", "f", ["x"], ["y"], [relu], [older])
    called = helper.make_node("f", ["x"], ["y"], domain="local")
    made = model(
        [called], [value("x", [2, 3])], [value("y", [2, 3])], opsets=opsets, functions=[body]
    )
    (found,) = compiled(load_model(save(made, tmp_path), {}, None, None), {"x": floats(2, 3)})
    np.testing.assert_array_equal(found, np.maximum(floats(2, 3), 0))


@each_row("widths", [[0, 5, 0, 0], [0, 0, 4, 0], [-2, 0, 2, 0]])
def test_a_reflection_of_more_than_there_is_is_refused(widths, tmp_path):
    made, _ = merged([case("Pad", {"x": SQUARE}, {"p": one(widths)}, mode="reflect")], 18)
    with pytest.raises(ModelError, match=r"Pad 'Pad0_y' reflects \d of \d elements"):
        load_model(save(made, tmp_path), {}, None, None)


def test_results_of_topk_are_in_order_where_any_order_would_do(tmp_path):
    made, feeds = merged(
        [case("TopK", {"x": SQUARE}, {"k": one([3])}, outputs=("v", "i"), made_of="", sorted=0)], 18
    )
    found, _ = compiled(load_model(save(made, tmp_path), {}, None, None), feeds)
    np.testing.assert_array_equal(found, -np.sort(-SQUARE)[:, :3])
