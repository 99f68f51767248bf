import itertools
import json

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx, topi
from tvm.s_tir import Schedule

import autopipe
from autopipe.compiler.graph import elementary
from autopipe.measure.check import PlainLoops
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.rows import ROWS, RowVectors
from autopipe.schedules.templates.template import dump, replay_setting
from tests.schedules.engines.test_default import argmax, pool, transpose_and_concat
from tests.schedules.loops import extents
from tests.schedules.tasks import TARGET
from tests.support.table import each_row

WIDE = HardwareParams(vector_bits=512, registers=32, cores=2)
NARROW = HardwareParams(vector_bits=128, registers=16, cores=2)


def softmax(shape=(3, 4, 37), dtype="float32"):
    x = te.placeholder(shape, dtype)
    return [x, topi.nn.softmax(x, axis=-1)]


def log_softmax(shape=(5, 40)):
    x = te.placeholder(shape, "float32")
    return [x, topi.nn.log_softmax(x, axis=-1)]


def masked_softmax():
    x, mask = te.placeholder((1, 2, 6, 24), "float32"), te.placeholder((1, 1, 1, 24), "float32")
    scaled = topi.divide(x, tirx.const(8.0, "float32"))
    return [x, mask, topi.nn.softmax(topi.add(scaled, mask), axis=-1)]


def layer_norm(shape=(2, 3, 48), dtype="float32"):
    x = te.placeholder(shape, dtype)
    scale, shift = (te.placeholder(shape[-1:], dtype) for _ in range(2))
    return [x, scale, shift, topi.nn.layer_norm(x, scale, shift, [len(shape) - 1])]


def rms_norm():
    x, scale = te.placeholder((3, 2, 40), "float32"), te.placeholder((40,), "float32")
    return [x, scale, topi.nn.rms_norm(x, scale, [2])]


def instance_norm(size=8):
    x = te.placeholder((2, 3, size, size), "float32")
    scale, shift = (te.placeholder((3,), "float32") for _ in range(2))
    return [x, scale, shift, topi.nn.instance_norm(x, scale, shift, 1, [2, 3])]


def group_norm(size=8):
    x = te.placeholder((2, 12, size, size), "float32")
    scale, shift = (te.placeholder((12,), "float32") for _ in range(2))
    return [x, scale, shift, topi.nn.group_norm(x, scale, shift, 4, 1, [2, 3])]


def transposed_softmax(shape):
    x = te.placeholder(shape, "float32")
    return [x, topi.transpose(topi.nn.softmax(x, axis=-1), [0, 2, 1])]


def statistics():
    x = te.placeholder((4, 20), "float32")
    mean = topi.sum(x, axis=1, keepdims=True)
    return [x, mean, topi.multiply(topi.subtract(x, mean), mean)]


def reduced(operation=topi.sum, shape=(5, 6, 7), axis=-1, dtype="float32", *, keepdims=False):
    x = te.placeholder(shape, dtype)
    return [x, operation(x, axis=axis, keepdims=keepdims)]


def looked_up(length):
    """Return the sum of the elements of a table that a row of indices of 64 bits names."""
    table, at = te.placeholder((9,), "float32"), te.placeholder((1, length), "int64")
    k = te.reduce_axis((0, length))
    return [table, at, te.compute((1,), lambda i: te.sum(table[at[i, k]], axis=k))]


def mean():
    x = te.placeholder((1, 9, 7, 7), "float32")
    return [x, topi.divide(topi.sum(x, axis=[2, 3], keepdims=True), tirx.const(49.0, "float32"))]


SERVED = {
    "softmax": softmax,
    "softmax_of_vectors": lambda: softmax((4, 64)),
    "softmax_of_one_row": lambda: softmax((1, 50)),
    "softmax_of_a_vector": lambda: softmax((50,)),
    "softmax_of_short_rows": lambda: softmax((6, 3)),
    "half_softmax": lambda: softmax((4, 35), "float16"),
    "double_softmax": lambda: softmax((4, 32), "float64"),
    "masked_softmax": masked_softmax,
    "log_softmax": log_softmax,
    "layer_norm": layer_norm,
    "odd_layer_norm": lambda: layer_norm((5, 19)),
    "half_layer_norm": lambda: layer_norm((5, 64), "float16"),
    "rms_norm": rms_norm,
    "sum": lambda: reduced(shape=(5, 6, 9)),
    "sum_of_all": lambda: reduced(shape=(9, 32), axis=None),
    "sum_of_two_axes": lambda: reduced(shape=(5, 6, 7), axis=(1, 2), keepdims=True),
    "sum_of_integers": lambda: reduced(shape=(4, 33), dtype="int32"),
    "sum_of_long_rows": lambda: reduced(shape=(2, 2064), dtype="int64"),
    "max": lambda: reduced(topi.max, (7, 50)),
    "max_of_bytes": lambda: reduced(topi.max, (7, 50), dtype="int8"),
    "min": lambda: reduced(topi.min, (3, 144), keepdims=True),
    "product": lambda: reduced(topi.prod, (3, 20)),
    "mean": mean,
    "instance_norm": instance_norm,
    "group_norm": group_norm,
    "odd_instance_norm": lambda: instance_norm(5),
}
NOT_SERVED = {
    "a_long_row_with_a_rest": lambda: reduced(topi.max, (3, 130)),
    "looked_up": lambda: looked_up(32),
    "odd_group_norm": lambda: group_norm(7),
    "argmax": argmax,
    "pool": pool,
    "transpose_and_concat": transpose_and_concat,
    "across_memory": lambda: reduced(axis=1),
    "around_an_axis": lambda: reduced(axis=(0, 2)),
    "softmax_across_memory": lambda: [
        x := te.placeholder((2, 5, 6), "float32"), topi.nn.softmax(x, axis=1)
    ],
    "rows_that_become_columns": lambda: transposed_softmax((2, 6, 6)),
    "other_rows_that_become_columns": lambda: transposed_softmax((2, 6, 8)),
    "two_results": statistics,
    "a_row_of_one": lambda: reduced(shape=(5, 1)),
    "a_short_row": reduced,
}  # fmt: skip


def module_of(tensors):
    return elementary.mark_inexact(tvm.IRModule({"main": te.create_prim_func(tensors)}))


def served(module):
    found = ROWS.match(make_schedule(module))
    assert found is not None
    return found


def scheduled(module, knobs=None, hardware=WIDE):
    sch, found = make_schedule(module), served(module)
    ROWS.apply(sch, found, knobs or ROWS.fill(found, hardware))
    return sch


@each_row("case", SERVED)
def test_a_scheduled_function_computes_the_same(case):
    module = module_of(SERVED[case]())
    loops, found = PlainLoops(module, TARGET), served(module)
    for knobs in {ROWS.fill(found, hardware) for hardware in (WIDE, NARROW)}:
        loops.check(scheduled(module, knobs).mod)


@each_row("case", NOT_SERVED)
def test_other_functions_are_left_to_others(case):
    assert ROWS.match(make_schedule(module_of(NOT_SERVED[case]()))) is None


@pytest.mark.parametrize(
    "case", ["softmax", "masked_softmax", "layer_norm", "sum_of_two_axes", "group_norm"]
)
def test_every_setting_is_right(case):
    module = module_of(SERVED[case]())
    found = served(module)
    every = list(ROWS.settings(found, NARROW))
    assert len(every) > 1
    loops = PlainLoops(module, TARGET)
    for knobs in itertools.islice(every, 0, None, 3):
        loops.check(scheduled(module, knobs).mod)


@each_row("case", SERVED)
def test_what_is_filled_in_is_a_setting(case):
    found = served(module_of(SERVED[case]()))
    for hardware in (WIDE, NARROW):
        every = list(ROWS.settings(found, hardware))
        assert ROWS.fill(found, hardware) in every
        assert len(set(every)) == len(every)


@pytest.mark.parametrize(
    "case", ["softmax", "masked_softmax", "layer_norm", "rms_norm", "mean", "group_norm"]
)
def test_all_steps_of_a_row_are_in_one_loop(case):
    sch = scheduled(module_of(SERVED[case]()))
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    assert len(sch.get_loops(block)) == 1


def test_a_reduction_goes_a_vector_at_a_time_and_then_in_halves():
    sch = scheduled(module_of(reduced(shape=(4, 96))))
    assert extents(sch.mod.script()) == [4, 32, 3, 32, 16, 8, 4]


def test_the_channels_of_a_group_stay_a_loop():
    """TVM sees that vectors lie in memory where two axes are one, and not where three are."""
    script = scheduled(module_of(group_norm())).mod.script()
    assert extents(script)[2:5] == [3, 1, 64]
    assert extents(script)[-3:] == [3, 1, 64]


def test_only_much_work_is_done_in_parallel():
    for rows, parallel in ((8, False), (4096, True)):
        sch = scheduled(module_of(softmax((rows, 64))))
        (block,) = sch.get_child_blocks(sch.get_sblock("root"))
        row = sch.get(sch.get_loops(block)[0])
        assert (row.kind == tirx.ForKind.PARALLEL) == parallel


@pytest.mark.parametrize("case", ["softmax_of_vectors", "softmax"])
def test_nothing_is_called_in_the_loops(case):
    module = scheduled(module_of(SERVED[case]()), hardware=NARROW).mod
    text = tvm.tirx.build(elementary.expand_functions(module), TARGET).inspect_source("ll")
    assert "expf" not in text
    assert "llvm.exp." not in text
    assert "<4 x float>" in text


def test_the_record_gives_the_schedule_again():
    module = module_of(softmax())
    sch = scheduled(module)
    setting = json.loads(dump(ROWS, ROWS.fill(served(module), WIDE)))
    again = replay_setting(module, ROWS, setting, WIDE)
    assert tvm_ffi.structural_equal(again.mod, sch.mod)


def test_rows_keep_their_own_values():
    """Vectors past the end of a row would take elements of the next one."""
    module = module_of(reduced(shape=(3, 21)))
    library = tvm.tirx.build(scheduled(module, RowVectors(16)).mod, TARGET)
    rows = np.repeat(np.array([[1.0], [100.0], [10000.0]], "float32"), 21, axis=1)
    out = tvm.runtime.empty((3,), "float32")
    library["main"](tvm.runtime.tensor(rows), out)
    np.testing.assert_array_equal(out.numpy(), [21, 2100, 210000])


def test_matching_changes_nothing():
    module = module_of(masked_softmax())
    sch = Schedule(module)
    ROWS.match(sch)
    assert tvm_ffi.structural_equal(sch.mod, module)


def test_a_row_that_is_cut_by_a_condition_has_each_element_once():
    x, k = te.placeholder((41, 43), "float32"), te.reduce_axis((0, 43))
    lower = te.compute(
        (41,), lambda i: te.sum(tirx.if_then_else(k <= i, x[i, k], tirx.const(0.0)), axis=k)
    )
    module = tvm.IRModule({"main": te.create_prim_func([x, lower])})
    PlainLoops(module, TARGET).check(scheduled(module, RowVectors(16)).mod)


def test_a_row_with_an_axis_of_one_step_ends_where_it_does():
    """Vectors of 4 do not divide 9 steps, and the last axis that is summed has a single one."""
    x = te.placeholder((32, 9, 1), "float64", name="x")
    k, one = te.reduce_axis((0, 9)), te.reduce_axis((0, 1))
    guard = lambda i: te.if_then_else(i > 2, x[i, k, one] * 2.0, 0.0)  # noqa: E731
    y = te.compute((32,), lambda i: te.sum(guard(i), axis=[k, one]))
    values = np.random.default_rng(0).random((32, 9, 1))
    (found,) = autopipe.auto_schedule([x, y])(values)
    right = np.where(np.arange(32) > 2, 2 * values.sum((1, 2)), 0)
    np.testing.assert_allclose(found, right)
