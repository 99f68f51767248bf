"""Transposes of any sides, types and orders, and what is fused with them, in vector registers."""

import numpy as np
import pytest
from tvm import te, topi

from autopipe.schedules.analysis.movement import inline_into_last
from autopipe.schedules.analysis.strides import find_strided_loops
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.transpose import TRANSPOSE
from tests.compiler.graphs import TARGET
from tests.schedules.computed import assert_same, called, compiled, normal
from tests.schedules.tensors import module_of, tensor

HERE = HardwareParams.of(TARGET)


def strides_of(tensors):
    sch = make_schedule(module_of(tensors))
    return find_strided_loops(sch.get(inline_into_last(sch)))


def served(module):
    found = TRANSPOSE.match(make_schedule(module))
    assert found is not None
    return found


def scheduled(module, knobs=None):
    sch, found = make_schedule(module), served(module)
    TRANSPOSE.apply(sch, found, knobs or TRANSPOSE.fill(found, HERE))
    return sch.mod


def test_axes_that_all_tensors_move_through_evenly_are_one_loop():
    x, bias = tensor(257, 257, 21), tensor(21, 1, 1)
    loops = strides_of([x, bias, topi.add(topi.transpose(x, (2, 0, 1)), bias)])
    assert loops.extents == (21, 66049)
    assert loops.written == (66049, 1)
    assert sorted(read.strides for read in loops.reads) == [(1, 0), (1, 21)]


def test_axes_are_cut_where_a_read_divides_them():
    x = tensor(1, 5, 3, 8)
    shuffled = topi.reshape(topi.transpose(x, (0, 2, 1, 3)), (1, 15, 8))
    loops = strides_of([x, shuffled])
    assert (loops.extents, loops.reads[0].strides) == ((3, 5, 8), (8, 24, 1))


def test_a_value_made_of_an_index_is_for_others():
    x = tensor(4)
    assert strides_of([x, te.compute((4, 8), lambda i, j: x[i] * j.astype("float32"))]) is None


@pytest.mark.parametrize(
    ("shape", "order", "dtype"),
    [
        ((1, 9, 11, 21), (0, 3, 1, 2), "float32"), ((5, 37, 39), (2, 0, 1), "float32"),
        ((33, 47), (1, 0), "uint8"), ((19, 26), (1, 0), "float16"), ((6, 2, 7), (2, 1, 0), "int64"),
        ((9, 10, 6, 11), (3, 1, 0, 2), "bool"), ((4, 4), (1, 0), "float64"),
        ((7, 3, 5, 11), (3, 2, 1, 0), "float32"), ((1, 56, 77, 3), (0, 3, 1, 2), "uint8"),
        ((2, 3, 4999), (0, 2, 1), "float32"),
    ],
)  # fmt: skip
def test_any_order_sides_and_type_are_transposed(shape, order, dtype):
    x = tensor(*shape, dtype=dtype)
    module = module_of([x, topi.transpose(x, order)])
    (function,) = compiled([scheduled(module)])
    tensors = normal(module)
    np.testing.assert_array_equal(called(function, tensors), tensors[0].numpy().transpose(order))


def test_every_setting_transposes_alike():
    x = tensor(37, 21)
    module = module_of([x, topi.transpose(x)])
    knobs = list(TRANSPOSE.settings(served(module), HERE))
    assert {one.threads for one in knobs} == {True, False}
    assert TRANSPOSE.fill(served(module), HERE) in knobs
    assert_same(module, *(scheduled(module, one) for one in knobs), rtol=0)


def test_a_short_side_is_unrolled_inside_the_loop_over_the_long_one():
    x = tensor(1, 56, 77, 3)
    module = module_of([x, topi.transpose(x, (0, 3, 1, 2))])
    assert served(module).interleaves
    text = scheduled(module).script()
    assert "in T.unroll(3)" in text or "in T.unroll(T.int64(3))" in text
    assert_same(
        module, *(scheduled(module, one) for one in TRANSPOSE.settings(served(module), HERE))
    )


def fused():
    """Yield what is computed around a transpose: other types, parts, and tensors read twice."""
    x, bias, other = tensor(11, 13, 22), tensor(22, 1, 1), tensor(22, 11, 13)
    y = topi.transpose(x, (2, 0, 1))
    yield [x, bias, other, topi.nn.relu(topi.add(topi.multiply(topi.add(y, bias), y), other))]
    small = tensor(21, 35, dtype="uint8")
    yield [small, topi.multiply(topi.cast(topi.transpose(small), "float32"), 0.25)]
    yield [x, topi.transpose(topi.strided_slice(x, [1, 2, 3], [10, 12, 20]), (2, 1, 0))]
    square = tensor(29, 29)
    yield [square, topi.add(square, topi.transpose(square))]


@pytest.mark.parametrize("tensors", list(fused()), ids=["sums", "bytes", "part", "square"])
def test_elementwise_work_is_done_on_transposed_blocks(tensors):
    module = module_of(list(tensors))
    assert_same(module, scheduled(module), inputs=(normal,), rtol=1e-6)


@pytest.mark.parametrize(
    "tensors",
    [
        lambda x: [x, topi.nn.relu(x)],
        lambda x: [x, topi.transpose(topi.nn.pad(x, [1, 1], [1, 1]))],
        lambda x: [x, topi.transpose(topi.greater(x, topi.transpose(x)))],
    ],
    ids=["nothing crosses", "a condition", "truths"],
)
def test_what_it_does_not_serve(tensors):
    assert TRANSPOSE.match(make_schedule(module_of(tensors(tensor(16, 16))))) is None
