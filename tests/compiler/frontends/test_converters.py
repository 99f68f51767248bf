from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.load import load_model
from tests.compiler.frontends.models import compiled, ints, model, node, run, save, tensor, value


def imported_ops(made, tmp_path):
    """Import a model, check that it computes the same, and count its operators."""
    import tvm
    from tvm import relax

    imported = load_model(save(made, tmp_path), {}, None, None)
    random = np.random.default_rng(0)
    feeds = {
        each.name: (5 * random.standard_normal(each.shape)).astype(each.dtype)
        for each in imported.inputs
    }
    for ours, reference in zip(compiled(imported, feeds), run(made, feeds), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-6, atol=1e-6)
    found: list[object] = []
    relax.analysis.post_order_visit(imported.module["main"], found.append)
    calls = (each for each in found if isinstance(each, relax.Call))
    return Counter(each.op.name for each in calls if isinstance(each.op, tvm.ir.Op))


INPUTS = [value("x", [2, 3, 4]), value("w", [3, 1]), value("z", [4])]


@pytest.mark.parametrize(
    ("kind", "op"), [("Sum", "add"), ("Max", "maximum"), ("Min", "minimum"), ("Mean", "add")]
)
def test_many_inputs_are_taken_in_pairs(tmp_path, kind, op):
    made = model([node(kind, ["x", "w", "z"])], INPUTS, [value("y", None)])
    ops = imported_ops(made, tmp_path)
    assert ops.pop("relax.divide", 0) == (kind == "Mean")
    assert ops == {f"relax.{op}": 2}


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (["x", "low", "high"], {"relax.maximum": 1, "relax.minimum": 1}),
        (["x", "low"], {"relax.maximum": 1, "relax.minimum": 1}),
        (["x", "", "high"], {"relax.maximum": 1, "relax.minimum": 1}),
    ],
)
def test_clip_is_a_maximum_and_a_minimum(tmp_path, inputs, expected):
    stored = [tensor("low", fill=-1), tensor("high", fill=2)]
    made = model([node("Clip", inputs)], [value("x", [4, 4])], [value("y", None)], stored)
    assert imported_ops(made, tmp_path) == expected


def test_clip_before_opset_11_has_attributes(tmp_path):
    nodes = [node("Clip", ["x"], "a", min=0.0, max=6.0), node("Clip", ["a"], max=3.0)]
    made = model(nodes, [value("x", [4, 4])], [value("y", None)], opset=9)
    assert imported_ops(made, tmp_path) == {"relax.maximum": 2, "relax.minimum": 2}


def test_clip_of_integers(tmp_path):
    stored = [helper.make_tensor("low", TensorProto.INT32, [], [-3])]
    made = model(
        [node("Clip", ["x", "low"])],
        [value("x", [4, 4], TensorProto.INT32)],
        [value("y", None, TensorProto.INT32)],
        stored,
    )
    assert imported_ops(made, tmp_path) == {"relax.maximum": 1}


def test_clip_by_what_is_computed_or_no_number_is_left_to_tvm(tmp_path):
    nodes = [
        node("ReduceMean", ["x"], "mean", keepdims=0),
        node("Clip", ["x", "mean", "nan"]),
    ]
    stored = [tensor("nan", fill=np.nan)]
    made = model(nodes, [value("x", [4, 4])], [value("y", None)], stored)
    assert imported_ops(made, tmp_path)["relax.call_tir"] == 2


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_one_hot_has_the_dtype_of_its_values(tmp_path, dtype):
    stored = [ints("depth", 6), numpy_helper.from_array(np.array([2, 7], dtype), "values")]
    nodes = [node("ArgMax", ["x"], "ids", axis=0), node("OneHot", ["ids", "depth", "values"])]
    output = value("y", None, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    made = model(nodes, [value("x", [4, 4])], [output], stored)
    assert "relax.one_hot" in imported_ops(made, tmp_path)


def test_the_size_of_a_known_shape_is_a_number(tmp_path):
    size = value("y", [], TensorProto.INT64)
    nodes = [node("Size", ["x"]), node("Neg", ["x"], "n")]
    made = model(nodes, [value("x", [4, 4])], [size, value("n", None)])
    assert imported_ops(made, tmp_path) == {"relax.negative": 1}


def test_a_slice_of_old_has_attributes(tmp_path):
    nodes = [
        node("Slice", ["x"], "a", starts=[0, 1], ends=[2, 9], axes=[0, 2]),
        node("Slice", ["a"], "y", starts=[-1], ends=[9]),
        node("Slice", ["x"], "z", starts=[1], ends=[2147483647], axes=[1]),
    ]
    outputs = [value("y", None), value("z", None)]
    made = model(nodes, [value("x", [3, 4, 5])], outputs, opset=9)
    assert imported_ops(made, tmp_path)["relax.strided_slice"] == 3


def test_nan_is_found_and_kept_where_numbers_are_compared(tmp_path):
    """As NumPy does; onnxruntime loses NaN in reductions and in orders."""
    import tvm
    from tvm import relax

    from autopipe.compiler.codegen.compile_kernels import compile_model
    from autopipe.compiler.passes.legalize import legalize_ops
    from autopipe.compiler.target.target import make_host_target

    stored = [ints("axes", 1), ints("three", 3)]
    nodes = [
        node("Relu", ["x"], "relu"),
        node("ReduceMax", ["x", "axes"], "most"),
        node("ReduceMin", ["x", "axes"], "least"),
        node("ArgMax", ["x"], "first", axis=1),
        node("ArgMin", ["x"], "last", axis=1),
    ]
    best = helper.make_node("TopK", ["x", "three"], ["best", "place"], axis=1)
    outputs = [value(name, None) for name in ("relu", "most", "least")]
    outputs += [value(name, None, TensorProto.INT64) for name in ("first", "last")]
    outputs += [value("best", None), value("place", None, TensorProto.INT64)]
    made = model([*nodes, best], [value("x", [4, 9])], outputs, stored, 18)
    x = np.random.default_rng(0).standard_normal((4, 9)).astype("float32")
    x[0, 5] = x[0, 7] = x[1, 0] = np.nan
    x[2] = -np.inf
    with make_host_target(1):
        module = legalize_ops(load_model(save(made, tmp_path), {}, None, None).module)
    kernels = relax.VirtualMachine(compile_model(module, make_host_target(1)), tvm.cpu())
    found = [each.numpy() for each in kernels["main"](tvm.runtime.tensor(x))]
    ranks = np.argsort(np.where(np.isnan(x), -1e9, -x), axis=1, kind="stable")[:, :3]
    expected = [
        np.maximum(x, 0), x.max(1, keepdims=True), x.min(1, keepdims=True),
        x.argmax(1)[:, None], x.argmin(1)[:, None], np.take_along_axis(x, ranks, 1), ranks,
    ]  # fmt: skip
    for ours, numpys in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, numpys)
