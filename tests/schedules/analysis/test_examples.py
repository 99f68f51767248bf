"""The examples in the docstrings of analysis, and of implementation `winograd`, are true."""

import numpy as np
import pytest
from tvm import topi
from tvm.s_tir import Schedule

from autopipe.schedules.analysis import gemm, movement, windows
from autopipe.schedules.analysis.gemm import Axis
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.implementations.filtering import KERNEL, Tiling
from autopipe.schedules.implementations.transforms import TRANSFORMS
from tests.schedules.tensors import module_of, tensor


def product(tensors, position=0):
    """Return what a block of a function sums, by the block's position."""
    sch = Schedule(module_of(tensors, []))
    return Product.of(sch.get(sch.get_child_blocks(sch.get_sblock("root"))[position]))


def test_a_transpose_moves_by_one_stride_for_each_axis():
    x = tensor(2, 8, 12)
    found = movement.match_movement(Schedule(module_of([x, topi.transpose(x, (0, 2, 1))], [])))
    assert found is not None
    assert (found.extents, found.tail) == ((2, 12, 8), 1)
    (read,) = found.reads
    assert read is not None
    assert [(piece.axis, piece.stride) for piece in read] == [(0, 96), (1, 1), (2, 12)]
    flat = movement.match_movement(Schedule(module_of([x, topi.nn.relu(x)], [])))
    assert flat is not None
    assert flat.tail == 3


def test_a_batched_product_is_a_loop_around_a_gemm():
    x, y = tensor(2, 8, 12), tensor(2, 12, 20)
    tensors = [x, y, topi.nn.batch_matmul(x, y, transpose_b=False)]
    found = gemm.match_gemm(product(tensors))
    assert found is not None
    assert (found.m, found.n, found.k) == (8, 20, 12)
    assert found.loops == (Axis(2, a=96, b=240, c=160),)


def test_a_convolution_of_one_pixel_is_one_gemm():
    x, w = tensor(1, 14, 14, 16), tensor(1, 1, 16, 32)
    sch = Schedule(module_of([x, w, topi.nn.conv2d_nhwc(x, w, 1, 0, 1)], []))
    *copies, block = sch.get_child_blocks(sch.get_sblock("root"))
    for copy in copies:
        sch.compute_inline(copy)
    pixels = Product.of(sch.get(block))
    assert pixels is not None
    found = gemm.match_gemm(pixels)
    assert found is not None
    assert (found.m, found.n, found.k, found.loops) == (196, 32, 16, ())


def test_how_often_an_element_of_an_operand_is_read():
    x, y = tensor(8, 12), tensor(20, 12)
    found = product([x, y, topi.matmul(x, y, transp_b=True)])
    assert (found.extents, found.terms) == ((8, 20), (12,))
    assert [found.copied(load) for load in found.loads] == [([0], [0]), ([1], [0])]
    assert [found.copies(load) for load in found.loads] == [1, 1]
    x, w = tensor(1, 14, 14, 16), tensor(3, 3, 16, 32)
    found = product([x, w, topi.nn.conv2d_nhwc(x, w, 1, 1, 1)], 1)
    assert found.copies(found.loads[0]) == 14 * 14 * 9 / (16 * 16)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_windows_of_a_pooling(layout):
    x = tensor(*((1, 56, 56, 96) if layout == "NHWC" else (1, 96, 56, 56)))
    y = topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max", layout=layout)
    found = windows.match_windows(Schedule(module_of([x, y], [])))
    if layout == "NCHW":
        assert found is None or found.along
        return
    assert found is not None
    assert (found.extents, found.window) == ((1, 28, 28, 96), (3, 3))
    assert (found.across, found.stride, found.reach, found.along) == ((1,), 2, 3, False)


@pytest.mark.parametrize("size", TRANSFORMS)
def test_minimal_filtering_is_a_convolution(size):
    matrices, side = TRANSFORMS[size], size + KERNEL - 1
    b, g, a = (np.array(m) for m in (matrices.input, matrices.kernel, matrices.output))
    assert (b.shape, g.shape, a.shape) == ((side, side), (side, 3), (size, side))
    rng = np.random.default_rng(0)
    patch, kernel = rng.random((side, side)), rng.random((3, 3))
    outputs = a @ ((g @ kernel @ g.T) * (b @ patch @ b.T)) @ a.T
    for i, j in np.ndindex(size, size):
        assert outputs[i, j] == pytest.approx((patch[i : i + 3, j : j + 3] * kernel).sum())


def test_tiles_of_an_image():
    small, large = Tiling.of([1, 14, 14, 256], 4), Tiling.of([1, 56, 56, 64], 4)
    assert (small.rows, small.columns, small.count) == (4, 4, 16)
    assert large.count == 196
    assert large.origin(20) == (0, 4, 24)


def test_tiles_of_a_dilated_convolution_cover_each_element_once():
    tiling = Tiling.of([2, 33, 10, 8], 4, (6, 2))
    assert (tiling.rows, tiling.columns) == (12, 4)  # 6 times 2, and 2 times 2
    assert tiling.origin(4) == (0, 1, 0)
    covered = np.zeros((2, 33, 10), int)
    for tile in range(tiling.count):
        image, top, left = tiling.origin(tile)
        covered[image, top : top + 24 : 6, left : left + 8 : 2] += 1
    assert (covered == 1).all()
