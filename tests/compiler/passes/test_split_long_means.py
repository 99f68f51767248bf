"""Means and variances of images, axis by axis: as many numbers, and right where nothing varies."""

import numpy as np
import pytest
from tvm import relax

from autopipe.compiler.passes.split_long_means import split_long_means
from tests.compiler.passes.test_widen_to_float32 import module_of, run

SHAPE = (2, 17, 3, 19, 4)
AXES = [1, -2, 2]


def of_image(op, shape=SHAPE, axes=AXES, *, keepdims=True, dtype="float32"):
    return module_of(lambda _, x: op(x, axes, keepdims), (shape, dtype))


def ops_of(module):
    values = [each.value for each in module["main"].body.blocks[0].bindings]
    return [value.op.name for value in values if isinstance(value, relax.Call)]


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize(
    ("op", "exact"), [(relax.op.mean, np.mean), (relax.op.variance, np.var)], ids=["mean", "var"]
)
def test_three_axes_one_after_the_other_are_what_they_are_together(op, exact, keepdims):
    after = split_long_means(of_image(op, keepdims=keepdims))
    image = np.random.default_rng(0).normal(3.0, 2.0, SHAPE).astype("float32")
    wanted = exact(image.astype("float64"), (1, 2, 3), keepdims=keepdims)
    found = run(after, image)
    assert ops_of(after).count("relax.mean") >= 2
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-6)


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("length", [640, 257, 1021], ids=["groups of 32", "a prime", "long"])
@pytest.mark.parametrize(
    ("op", "exact"), [(relax.op.mean, np.mean), (relax.op.variance, np.var)], ids=["mean", "var"]
)
def test_groups_of_one_long_axis_and_what_stays_of_it_come_together(op, exact, length, keepdims):
    shape = (2, length, 3)
    after = split_long_means(of_image(op, shape, [1], keepdims=keepdims))
    sound = np.random.default_rng(0).normal(3.0, 2.0, shape).astype("float32")
    sound[:, length - length % 64 :] += 5  # what stays has another mean
    wanted = exact(sound.astype("float64"), 1, keepdims=keepdims)
    found = run(after, sound)
    assert "relax.reshape" in ops_of(after)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-6)


@pytest.mark.parametrize(
    ("shape", "axes"), [((1, 64, 64, 8), [1, 2]), ((1, 1, 4096, 8), [1, 2]), ((1, 4099, 8), [1])]
)
def test_of_equal_numbers_the_mean_is_near_and_the_variance_next_to_nothing(shape, axes):
    image = np.full(shape, 0.195, "float32")
    (mean,) = {*run(split_long_means(of_image(relax.op.mean, shape, axes)), image).flat}
    (variance,) = {*run(split_long_means(of_image(relax.op.variance, shape, axes)), image).flat}
    assert abs(mean - image.flat[0]) < 3e-6 * mean  # 4e-5 in one chain
    assert 0 <= variance < 1e-12


@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((4, 4096), [1], "float32"),
        ((1, 7, 7, 64), [1, 2], "float32"),
        ((1, 255, 8), [1], "float32"),
        ((4096, 8), [0], "int32"),
    ],
    ids=["a row", "few", "few along one axis", "integers"],
)
def test_what_stays(shape, axes, dtype):
    before = of_image(relax.op.mean, shape, axes, dtype=dtype)
    assert ops_of(split_long_means(before)) == ["relax.mean"]
