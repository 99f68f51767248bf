"""Convolutions that are cut where the same taps read the image: the same results from fewer."""

import numpy as np
import pytest

from autopipe.compiler.passes.split_by_live_regions import (
    LiveRegion,
    list_live_regions,
    split_by_live_regions,
)
from tests.compiler.passes.test_drop_dead_taps import convolution
from tests.compiler.passes.test_split_long_means import ops_of
from tests.compiler.passes.test_widen_to_float32 import run


def test_regions_of_the_head_of_a_deeplab():
    assert list_live_regions(16, 3, 12, (12, 12)) == [
        LiveRegion(4, range(1, 3), range(16)),
        LiveRegion(8, range(1, 2), range(4, 12)),
        LiveRegion(4, range(2), range(16)),
    ]


def test_results_that_read_padding_alone_leave_an_axis_whole():
    assert list_live_regions(4, 3, 1, (6, 0)) == []


@pytest.mark.parametrize(
    ("shape", "kernel", "attrs"),
    [
        ((1, 4, 6, 5), (6, 4, 3, 3), {"padding": [4, 4], "dilation": [4, 4]}),
        ((2, 4, 4, 9), (6, 4, 3, 1), {"padding": [3, 0], "dilation": [3, 1]}),
        ((1, 4, 8, 4), (6, 4, 3, 2), {"padding": [6, 3, 5, 0], "dilation": [6, 3]}),
    ],
    ids=["nine regions", "one axis", "as many taps as there are, sides of their own"],
)
def test_results_are_those_of_all_taps(shape, kernel, attrs, monkeypatch):
    monkeypatch.setattr("autopipe.compiler.passes.split_by_live_regions._LIVE", 0.7)
    monkeypatch.setattr("autopipe.compiler.passes.split_by_live_regions._SAVED", 1)
    before = convolution(shape, kernel, **attrs)
    after = split_by_live_regions(before)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=size).astype("float32") for size in (shape, kernel)]
    assert "relax.concat" in ops_of(after)
    np.testing.assert_allclose(run(after, *arrays), run(before, *arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "kernel", "attrs"),
    [
        ((1, 8, 6, 6), (8, 8, 3, 3), {"padding": [4, 4], "dilation": [4, 4]}),
        ((1, 512, 9, 9), (512, 512, 3, 3), {"padding": [2, 2], "dilation": [2, 2]}),
    ],
    ids=["small", "most taps read the image"],
)
def test_what_would_not_gain_stays_whole(shape, kernel, attrs):
    assert ops_of(split_by_live_regions(convolution(shape, kernel, **attrs))) == ["relax.nn.conv2d"]
