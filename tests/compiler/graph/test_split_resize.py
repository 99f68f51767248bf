"""Images that become larger, along one axis after the other: what TVM's form computes."""

import numpy as np
import pytest
import tvm_ffi
from tvm import relax

from autopipe.compiler.graph.calls import list_bindings
from autopipe.compiler.passes.legalize import legalize_ops
from autopipe.compiler.passes.transpose_before_resize import transpose_before_resize
from tests.compiler.passes.test_widen_to_float32 import NARROW, module_of, run

LINEAR = {"method": "linear", "coordinate_transformation_mode": "half_pixel"}
NEAREST = {**LINEAR, "method": "nearest_neighbor", "rounding_method": "round_prefer_floor"}


def larger(size=(11, 13), **how):
    def build(_, x):
        return relax.op.image.resize2d(x, relax.ShapeExpr(size), **how)

    return module_of(build, ((2, 3, 5, 4), "float32"))


def calls(module):
    return len(list(list_bindings(module["main"])))


@pytest.mark.parametrize("how", [LINEAR, NEAREST], ids=["linear", "nearest"])
def test_it_computes_the_same(how):
    module = larger(**how)
    with NARROW:
        apart = legalize_ops(module)
    image = np.random.default_rng(0).standard_normal((2, 3, 5, 4)).astype("float32")
    assert calls(apart) >= 4
    np.testing.assert_allclose(run(apart, image), run(module, image), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "how",
    [
        {**LINEAR, "size": (3, 3)},
        {**LINEAR, "layout": "NHWC"},
        {**NEAREST, "coordinate_transformation_mode": "asymmetric"},
        {**LINEAR, "method": "cubic"},
    ],
    ids=["smaller", "channels last", "integers are divided", "cubic"],
)
def test_what_tvm_keeps(how):
    with NARROW:
        assert calls(legalize_ops(larger(**how))) <= 2


def behind(*, twice):
    def build(builder, x):
        image = builder.emit(relax.op.image.resize2d(x, relax.ShapeExpr((11, 13)), layout="NHWC"))
        turned = builder.emit(relax.op.permute_dims(image, [0, 3, 1, 2]))
        return relax.Tuple([turned, image]) if twice else relax.op.nn.relu(turned)

    return module_of(build, ((1, 5, 4, 3), "float32"))


def test_a_transpose_behind_turns_the_small_image():
    before = behind(twice=False)
    after = relax.transform.DeadCodeElimination()(transpose_before_resize(before))
    names = [each.value.op.name for each in list_bindings(after["main"])]
    assert names.index("relax.permute_dims") < names.index("relax.image.resize2d")
    image = np.random.default_rng(0).standard_normal((1, 5, 4, 3)).astype("float32")
    np.testing.assert_allclose(run(after, image), run(before, image), rtol=1e-6, atol=1e-6)


def test_an_image_that_is_read_elsewhere_too_stays():
    before = behind(twice=True)
    assert tvm_ffi.structural_equal(transpose_before_resize(before), before)


def test_a_call_of_a_function_without_operands_stays():
    builder = relax.BlockBuilder()
    with builder.function("part", [], private=True):
        part = builder.emit_func_output(builder.emit(relax.const(np.ones(4, "float32"))))
    with builder.function("main", []):
        builder.emit_func_output(builder.emit(relax.Call(part, [])))
    before = builder.get()
    assert tvm_ffi.structural_equal(transpose_before_resize(before), before)
