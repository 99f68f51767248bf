"""Convolutions whose taps read padding alone: the same results from fewer taps."""

import numpy as np
import pytest
from tvm import relax

from autopipe.compiler.graph.shared_types import share_types
from autopipe.compiler.passes.drop_dead_taps import LiveTaps, drop_dead_taps
from tests.compiler.passes.test_split_long_means import ops_of
from tests.compiler.passes.test_widen_to_float32 import module_of, run


@pytest.mark.parametrize(
    ("axis", "live"),
    [
        ((16, 3, 1, 36, (36, 36)), LiveTaps(1, 2, (0, 0), 1)),
        ((16, 3, 1, 16, (16, 16)), LiveTaps(1, 2, (0, 0), 1)),
        ((16, 3, 1, 15, (15, 15)), LiveTaps(0, 3, (15, 15), 15)),
        ((1, 5, 1, 1, (2, 2)), LiveTaps(2, 3, (0, 0), 1)),
        ((2, 5, 1, 2, (4, 4)), LiveTaps(2, 3, (0, 0), 1)),
        ((8, 5, 1, 6, (12, 12)), LiveTaps(1, 4, (6, 6), 6)),
        ((8, 2, 1, 9, (9, 0)), LiveTaps(1, 2, (0, 0), 1)),
        ((1, 3, 2, 1, (1, 1)), LiveTaps(1, 2, (0, 0), 1)),
        ((4, 3, 1, 1, (6, 0)), LiveTaps(0, 3, (6, 0), 1)),
    ],
)
def test_taps_that_meet_the_image_and_what_padding_they_need(axis, live):
    assert LiveTaps.of(*axis) == live


def convolution(shape, kernel, **attrs):
    return module_of(
        lambda _, x, w: relax.op.nn.conv2d(x, w, **attrs), (shape, "float32"), (kernel, "float32")
    )


@pytest.mark.parametrize(
    ("shape", "kernel", "attrs"),
    [
        ((1, 3, 6, 5), (4, 3, 3, 3), {"padding": [7, 7], "dilation": [7, 7]}),
        ((2, 4, 6, 9), (4, 2, 3, 5), {"padding": [6, 4], "dilation": [6, 2], "groups": 2}),
        ((1, 2, 1, 4), (3, 2, 3, 3), {"padding": [1, 1], "strides": [2, 2]}),
        ((1, 2, 4, 4), (3, 2, 2, 2), {"padding": [5, 0, 0, 5], "dilation": [5, 5]}),
    ],
    ids=["one of nine", "groups, another number of taps along each axis", "stride", "one side"],
)
def test_results_are_those_of_all_taps(shape, kernel, attrs):
    before = convolution(shape, kernel, **attrs)
    after = drop_dead_taps(before)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=size).astype("float32") for size in (shape, kernel)]
    assert "relax.strided_slice" in ops_of(after)
    np.testing.assert_allclose(run(after, *arrays), run(before, *arrays), rtol=1e-5, atol=1e-6)


def test_where_all_taps_meet_the_image_nothing_changes():
    before = convolution((1, 3, 8, 8), (4, 3, 3, 3), padding=[2, 2], dilation=[2, 2])
    assert ops_of(drop_dead_taps(before)) == ["relax.nn.conv2d"]


def test_each_size_of_image_is_examined():
    conv2d, padding = relax.op.nn.conv2d, {"padding": [2, 2]}
    module = module_of(
        lambda builder, x, y, w: relax.op.add(
            builder.emit(conv2d(x, w, **padding)), builder.emit(conv2d(y, w, **padding))
        ),
        ((1, 4, 8, 8), "float32"), ((1, 4, 1, 1), "float32"), ((4, 4, 5, 5), "float32"),
    )  # fmt: skip
    assert ops_of(drop_dead_taps(share_types(module))).count("relax.strided_slice") == 1
