"""The check of a schedule, and what it must not miss."""

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx, topi
from tvm.s_tir import Schedule

from autopipe.compiler.library.row_order import reorder_reductions
from autopipe.measure.cases import CASES, make_case_arguments
from autopipe.measure.check import (
    NotChecked,
    Unsteady,
    WrongAnswer,
    checked,
    has_same_bytes,
)
from autopipe.measure.plain_code import PlainSource, compile_plain
from tests.schedules.tasks import TARGET


def module(*tensors):
    return tvm.IRModule({"main": te.create_prim_func(tensors)})


def matmul(size=24, *, offset=0, dtype="float32"):
    x, y = te.placeholder((size, size), dtype), te.placeholder((size, size), dtype)
    k = te.reduce_axis((0, size))
    index = te.indexmod if offset else (lambda value, _: value)
    return module(
        x, y,
        te.compute((size, size), lambda i, j: te.sum(x[i, index(k + offset, size)] * y[k, j], k)),
    )  # fmt: skip


def pointwise(function, dtype="float32"):
    x = te.placeholder((5, 33), dtype)
    return module(x, te.compute(x.shape, lambda *index: function(x[index])))


def softmax(stable):
    x = te.placeholder((4, 32), "float32")
    if stable:
        return module(x, topi.nn.softmax(x))
    powers = topi.exp(x)
    return module(x, topi.divide(powers, topi.sum(powers, 1, keepdims=True)))


def scheduled(workload):
    sch = Schedule(workload)
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    sch.parallel(sch.get_loops(block)[0])
    return sch.mod


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8", "int64"])
def test_a_right_schedule_is_returned(dtype):
    workload = matmul(dtype=dtype)
    right = scheduled(workload)
    assert checked(workload, right, TARGET) is right


@pytest.mark.fault("E1")
@pytest.mark.parametrize(
    ("workload", "wrong", "case"),
    [
        (matmul, lambda: matmul(offset=1), "random"),
        (lambda: pointwise(lambda v: v), lambda: pointwise(te.abs), "random"),
        (lambda: pointwise(lambda v: v, "int8"), lambda: pointwise(te.abs, "int8"), "random"),
        (lambda: softmax(stable=True), lambda: softmax(stable=False), "large"),
        (
            lambda: pointwise(lambda v: te.if_then_else(v == 0.0, 1.0, v)),
            lambda: pointwise(lambda v: v),
            "spikes",
        ),
    ],
    ids=["index", "sign", "range", "overflow", "zero"],
)
def test_a_wrong_one_is_found_by_some_case(workload, wrong, case):
    with pytest.raises(WrongAnswer, match=f"from the plain loops on {case} inputs"):
        checked(workload(), wrong(), TARGET)


def halves(scale):
    """Half of a saturated tanh, which is halfway between two whole numbers, in steps."""
    return pointwise(lambda v: te.nearbyint(te.tanh(v) * scale) * 1e4)


def test_a_step_may_differ_where_functions_round_otherwise():
    """No input near a large one moves its tanh, so that only the functions can be moved."""
    checked(halves(0.5), halves(0.5 * (1 + 2**-22)), TARGET)
    with pytest.raises(WrongAnswer, match="on large inputs"):
        checked(halves(0.4), halves(0.6), TARGET)


def test_what_no_reference_says_is_not_compared():
    """0 / 0 and logarithms of negative numbers may be computed in any way."""
    workload = pointwise(lambda v: te.log(v) * 0.5 + v / v)
    other = pointwise(lambda v: te.log(v) / 2.0 + te.if_then_else(v == 0.0, 7.0, v / v))
    checked(workload, other, TARGET)


def test_a_schedule_that_does_not_compile_is_wrong_and_a_workload_is_not_checked():
    broken = tvm.IRModule({"main": te.create_prim_func([te.placeholder((4,), "float32")])})
    nothing = tvm.ir.Call("tirx.tvm_mma_sync", [], ret_ty="int32")  # for GPUs alone
    broken["main"] = broken["main"].with_body(tvm.tirx.Evaluate(nothing))
    with pytest.raises(WrongAnswer, match="does not compile"):
        checked(matmul(), broken, TARGET)
    with pytest.raises(NotChecked, match="the plain loops"):
        checked(broken, matmul(), TARGET)


def test_a_schedule_that_is_not_well_formed_is_wrong():
    """It would compile, and fail the build as a whole."""
    workload = pointwise(lambda v: v * 2.0)
    function = workload["main"]
    nest = function.body.block.body
    block = function.body.block
    twice = tvm.s_tir.SBlock([], [], [], "root", tvm.tirx.SeqStmt([nest, nest]))
    body = tvm.s_tir.SBlockRealize([], True, twice)  # noqa: FBT003 - TVM's signature
    assert block.name_hint == "root"
    same = tvm.tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
    with pytest.raises(WrongAnswer, match="ill-formed"):
        checked(workload, tvm.IRModule({"main": same}), TARGET)


def test_plain_loops_in_the_order_of_memory_give_the_same_bits():
    x = te.placeholder((1, 6, 6, 12), "float32")
    w = te.placeholder((3, 3, 12, 20), "float32")
    workload = module(x, w, topi.nn.relu(topi.nn.conv2d_nhwc(x, w, 1, 1, 1)))
    ordered = reorder_reductions(workload)
    assert not tvm_ffi.structural_equal(ordered, workload)
    results = []
    for each in (workload, ordered):
        tensors = [tvm.runtime.tensor(a) for a in make_case_arguments(each, "random", 0)]
        target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
        tvm.tirx.build(each, target)["main"](*tensors)
        results.append(tensors[-1].numpy())
    assert np.array_equal(*results)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES)
def test_inputs_are_the_same_for_the_same_seed(case):
    first, again, other = (make_case_arguments(matmul(), case, seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert np.isfinite(first).all()
    assert np.array_equal(first, other) == (case == "zeros")


def test_indices_stay_inside():
    values = make_case_arguments(matmul(dtype="int64"), "large", 0)[0]
    assert set(np.unique(values)) == {0, 1}


def gather(entries, index=lambda value: value):
    table, chosen = te.placeholder((entries, 4), "float32"), te.placeholder((9,), "int64")
    return module(
        table, chosen, te.compute((9, 4), lambda i, j: table[index(chosen[i]), j])
    )  # fmt: skip


def divided(function, dtype="int32"):
    x, y = te.placeholder((5, 33), dtype), te.placeholder((5, 33), dtype)
    return module(x, y, te.compute(x.shape, lambda *index: function(x[index], y[index])))


def test_indices_are_drawn_from_what_they_choose_from():
    for entries in (1, 2, 7):
        for case in CASES:
            values = make_case_arguments(gather(entries), case, 0)[1]
            assert values.min() >= 0
            assert values.max() < entries
    assert make_case_arguments(gather(2), "random", 0)[1].max() == 1
    checked(gather(1), scheduled(gather(1)), TARGET)
    with pytest.raises(WrongAnswer):
        checked(gather(7), scheduled(gather(7, lambda value: te.indexmod(value + 1, 7))), TARGET)


def test_nothing_is_divided_by_zero():
    for function in (te.truncmod, te.floormod, te.truncdiv, te.floordiv):
        workload = divided(function)
        checked(workload, scheduled(workload), TARGET)


def test_a_tile_is_checked_against_what_it_is():
    """LLVM takes wrong elements here, where it makes vectors for AVX-512."""
    x = te.placeholder((2, 3, 4, 5), "float32")
    workload = module(x, topi.tile(x, (7, 6, 4, 2)))
    plain = compile_plain(PlainSource(workload))
    array, out = np.random.default_rng(0).random((2, 3, 4, 5), "f"), np.zeros((14, 18, 16, 10), "f")
    tensors = [tvm.runtime.tensor(each) for each in (array, out)]
    plain.loops(*tensors)
    assert np.array_equal(tensors[1].numpy(), np.tile(array, (7, 6, 4, 2)))


@pytest.mark.fault("E1")
def test_what_lies_beside_the_arguments_is_not_touched():
    """Whether a schedule does it, or the loops themselves, or indices that the check made up."""

    def far(table, _):
        return te.compute((9, 4), lambda i, j: table[i + 3, j])

    def past(_, i, j):
        return i + 1, j

    table, right = te.placeholder((9, 4), "float32"), gather(9)
    outside = module(table, far(table, None))
    with pytest.raises(Unsteady, match="read outside of their arguments"):
        checked(outside, scheduled(outside), TARGET)
    inside = module(table, te.compute((9, 4), lambda i, j: table[i, j]))
    with pytest.raises(WrongAnswer, match="off by"):
        checked(inside, outside, TARGET)
    with pytest.raises(NotChecked, match="which may be wrong indices"):
        checked(gather(9, lambda value: value + 3), right, TARGET)
    moved = scheduled(inside)
    store = moved["main"].body.block.body.body.body.block.body
    further = tvm.tirx.BufferStore(store.buffer, store.value, past(store.buffer, *store.indices))
    body = tvm_ffi.structural_map(moved["main"].body, (tvm.tirx.BufferStore, lambda _: further))
    moved.update_func(moved.get_global_var("main"), moved["main"].with_body(body))
    with pytest.raises(WrongAnswer, match="writes outside of its arguments"):
        checked(inside, moved, TARGET)


def test_where_the_plain_loops_waver_a_schedule_may_too():
    def near_zero(v):
        return te.power(te.const(1.0, "float32") + v * te.const(1e-4, "float32"), -0.75)

    def reordered(v):
        return te.power((v + te.const(1e4, "float32")) * te.const(1e-4, "float32"), -0.75)

    workload, other = pointwise(near_zero), pointwise(reordered)
    assert checked(workload, other, TARGET) is other
    wrong = pointwise(lambda v: near_zero(v) * te.const(1.01, "float32"))
    with pytest.raises(WrongAnswer):
        checked(workload, wrong, TARGET)


def squares(count, used=None):
    """The mean of squares without their mean, as a normalization over a whole image has it."""
    x, k = te.placeholder((count,), "float32"), te.reduce_axis((0, used or count))
    mean = topi.divide(topi.sum(x, keepdims=True), te.const(count, "float32"))
    apart = topi.subtract(x, mean)
    total = te.compute((1,), lambda _: te.sum(apart[k] * apart[k], k), "total")
    return module(x, topi.divide(total, te.const(count, "float32")))


def test_long_sums_one_after_the_other_round_more_often_than_sums_of_parts():
    """A group norm over 255744 elements was called wrong, and ran as plain loops."""
    sch = Schedule(squares(255744))
    for name in ("placeholder_red", "total"):
        row = sch.get_loops(sch.get_sblock(name))[-1]
        sch.rfactor(sch.split(row, [None, 64])[1], 1)
    parts = sch.mod
    assert checked(squares(255744), parts, TARGET) is parts
    with pytest.raises(WrongAnswer):
        checked(squares(255744), squares(255744, 255744 - 8000), TARGET)


def test_a_value_may_be_rounded_to_either_side_and_no_further():
    def steps(v):
        return te.round(v * te.const(127.0, "float32"))

    def later(v):
        return te.round(v * te.const(127.03, "float32"))

    workload, other = pointwise(steps), pointwise(later)
    assert checked(workload, other, TARGET) is other
    wrong = pointwise(lambda v: steps(v) * te.const(1.1, "float32"))
    with pytest.raises(WrongAnswer):
        checked(workload, wrong, TARGET)


def test_bytes_may_be_a_step_apart_where_the_plain_loops_waver():
    def stored(scale, offset=0):
        def made(v):
            steps = te.round(v * te.const(scale, "float32")) + te.const(offset, "float32")
            low, high = (te.const(edge, "float32") for edge in (-127.0, 127.0))
            return te.min(te.max(steps, low), high).astype("int8")

        return pointwise(made)

    workload, other = stored(126.0), stored(126.03)
    assert checked(workload, other, TARGET) is other
    for wrong in (stored(126.0, 1), stored(120.0)):
        with pytest.raises(WrongAnswer):
            checked(workload, wrong, TARGET)


def test_bits_of_floats_may_be_as_far_apart_as_the_floats():
    def bits(scale):
        return pointwise(
            lambda v: tirx.reinterpret("int32", te.exp(v) * tirx.const(scale, "float32"))
        )

    workload, other = bits(1.0), bits(1.0 + 2**-22)
    assert checked(workload, other, TARGET) is other
    with pytest.raises(WrongAnswer):
        checked(workload, bits(1.0 + 2**-12), TARGET)


def test_large_arrays_are_compared_by_all_their_bytes():
    values = np.full((3, 100_001), np.nan, np.float32)
    assert has_same_bytes(values, values.copy())
    assert has_same_bytes(values.T, values.T.copy())
    assert not has_same_bytes(values, values[:2])
    other = values.copy()
    other.view(np.uint8)[-1, -1] ^= 1
    assert not has_same_bytes(values, other)
    assert not has_same_bytes(np.zeros(2, np.float32), -np.zeros(2, np.float32))
