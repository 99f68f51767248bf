"""Numbers of 64 bits, and large integers, keep all their digits through the converters of ours."""

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.config.dimension import Dimension
from autopipe.config.model import Input
from tests.compiler.frontends.models import by_onnx, compiled, model, node, run, save, value
from tests.compiler.frontends.test_new_operators import case, merged

DOUBLE, LARGE = TensorProto.DOUBLE, TensorProto.INT64
IMAGE = np.random.default_rng(1).standard_normal((1, 2, 4, 6))
WHOLE = np.random.default_rng(2).integers(2**30, 2**31, (1, 2, 4, 6)).astype(np.int32)
TWICE = np.array([1, 1, 2, 2], np.float32)
SIZES = np.array([5, 7])


def resized(data, **attributes):
    if "axes" in attributes:
        return case("Resize", {"x": data}, {"z": SIZES}, order=["x", "", "", "z"], **attributes)
    return case("Resize", {"x": data}, {"s": TWICE}, order=["x", "", "s"], **attributes)


RESIZED = [
    resized(IMAGE, mode="linear"),
    resized(IMAGE, mode="cubic"),
    resized(IMAGE, mode="nearest"),
    resized(IMAGE, mode="linear", axes=[2, 3]),
    resized(IMAGE, mode="linear", axes=[3, 2], antialias=1),
    resized(IMAGE, mode="nearest", axes=[2, 3]),
    resized(WHOLE, mode="nearest", axes=[2, 3]),
]


@pytest.mark.parametrize("number", range(len(RESIZED)))
def test_resized_images_keep_their_digits(number, tmp_path):
    made, feeds = merged(RESIZED[number : number + 1], 19)
    imported = load_model(save(made, tmp_path), {}, None, None)
    (found,), (right,) = compiled(imported, feeds), by_onnx(made, feeds)
    assert found.dtype == right.dtype
    np.testing.assert_allclose(found, right, rtol=1e-12)


def test_integers_are_mixed_with_all_their_digits(tmp_path):
    made, feeds = merged([resized(WHOLE, mode="linear", axes=[2, 3])], 19)
    (found,), (right,) = (
        compiled(load_model(save(made, tmp_path), {}, None, None), feeds),
        by_onnx(made, feeds),
    )
    assert np.abs(found.astype("int64") - right).max() <= 1


def test_images_of_dynamic_sizes_keep_their_digits(tmp_path):
    nodes = [node("Resize", ["x", "", "s"], mode="linear")]
    made = model(nodes, [value("x", [1, 2, "h", 6], DOUBLE)], [value("y", None, DOUBLE)],
                 [numpy_helper.from_array(TWICE, "s")])  # fmt: skip
    path = save(made, tmp_path)
    dimensions = {"h": Dimension(max=9, likely=(4,))}
    imported = load_model(path, {"x": Input(shape=(1, 2, "h", 6))}, None, None, dimensions)
    main = relax.VirtualMachine(
        tvm.compile(imported.module, target=tvm.target.Target({"kind": "llvm"})), tvm.cpu()
    )["main"]
    found = main(tvm.runtime.tensor(IMAGE), tvm.runtime.ShapeTuple([4])).numpy()
    np.testing.assert_allclose(found, by_onnx(made, {"x": IMAGE})[0], rtol=1e-12)


def test_a_large_number_that_a_branch_casts_is_that_number(tmp_path):
    def branch(name, number):
        nodes = [
            helper.make_node("Constant", [], ["f"], value_float=number),
            node("Cast", ["f"], "i", to=LARGE), node("Add", ["x", "i"], name),
        ]  # fmt: skip
        return helper.make_graph(nodes, name, [], [value(name, [2], LARGE)])

    branches = {"then_branch": branch("t", 3e9), "else_branch": branch("e", -(2.0**40))}
    made = model([node("If", ["c"], **branches)],
                 [value("x", [2], LARGE), value("c", [], TensorProto.BOOL)],
                 [value("y", [2], LARGE)])  # fmt: skip
    path = save(made, tmp_path)
    for condition in (True, False):
        feeds = {"x": np.array([1, 2]), "c": np.array(condition)}
        (found,) = compiled(load_model(path, {}, None, None), feeds)
        np.testing.assert_array_equal(found, run(path, feeds)[0])
