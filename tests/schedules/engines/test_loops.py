"""A function's own loops are schedules, too, and templates leave to them what vectors only slow."""

import tvm
import tvm_ffi
from tvm import te

from autopipe.api.compute import to_declared_module
from autopipe.schedules.engines import default, loops
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.replay import replay_schedule
from autopipe.schedules.templates.elementwise import ELEMENTWISE
from tests.compiler.cuda_graphs import CONDITIONS as GPU
from tests.schedules.engines.test_default import pool
from tests.schedules.tasks import CONDITIONS
from tests.schedules.tensors import module_of
from tests.support.table import each_row

SIZE = 96
CUBE = (SIZE, SIZE, SIZE)


def read_at(index, shape=CUBE):
    """Return a function that doubles what it reads of a cube at an index."""
    x = te.placeholder(CUBE, name="x")
    rows = te.placeholder((SIZE,), "int32", name="rows")
    y = te.compute(shape, lambda *axes: x[index(rows, *axes)] * 2.0, name="y")
    used = [one for one in (x, rows) if any(map(one.same_as, y.op.input_tensors))]
    return to_declared_module([*used, y])


def clamped(value):
    return te.max(te.min(value, SIZE - 1), 0)


def test_they_are_as_lowered_on_one_thread_or_with_the_outermost_in_threads():
    module = module_of(pool(), [])
    alone, shared = loops.plan(module, CONDITIONS), loops.plan_parallel(module, CONDITIONS)
    assert alone is not None
    assert shared is not None
    assert tvm_ffi.structural_equal(alone.module, module)
    assert "T.parallel" in shared.module.script()
    for planned in (alone, shared):
        made = replay_schedule(module, "direct", planned.schedule, CONDITIONS)
        assert tvm_ffi.structural_equal(made, planned.module)


def test_a_gpu_and_a_single_number_have_no_loops_to_share():
    total = te.placeholder((64,), name="x")
    k = te.reduce_axis((0, 64))
    alone = to_declared_module([total, te.compute((), lambda: te.sum(total[k], axis=k))])
    assert loops.plan_parallel(alone, CONDITIONS) is None
    assert loops.plan(alone, GPU) is loops.plan_parallel(alone, GPU) is None


@each_row(
    "index",
    [
        lambda _, i, j, k: (i, j, clamped(k + 1)),
        lambda _, i, j, k: (i, j, k ^ 1),
        lambda rows, i, j, k: (i, j, rows[k]),
        lambda _, i, j, k: (i, j, (k + 1) % SIZE),
        lambda _, i, j, k: (i, j, (5 * k) % SIZE),
    ],
)
def test_vectors_of_what_no_stride_leads_to_are_left_to_llvm(index):
    found = ELEMENTWISE.match(make_schedule(read_at(index)))
    assert found is not None
    assert found.scattered
    assert ELEMENTWISE.fill(found, CONDITIONS.hardware).width == 1
    planned = default.plan(read_at(index), CONDITIONS)
    assert planned is not None
    assert "T.vectorized" not in planned.module.script()


def test_a_table_of_any_size_is_no_obstacle():
    table = te.placeholder((te.var("n"), SIZE), name="table")
    rows = te.placeholder((SIZE,), "int32", name="rows")
    y = te.compute((SIZE, SIZE), lambda i, j: table[rows[j], i] * 2.0)
    module = tvm.IRModule({"main": te.create_prim_func([table, rows, y])})
    assert default.plan(module, CONDITIONS) is not None


@each_row(
    "index, axes",
    [
        (lambda _, i, j, k: (i, j, k), 3),
        (lambda _, i, j, k: ((i + 1) % SIZE, j, k), 2),
        (lambda _, i, j, k: (i, (j + 1) % SIZE, k), 1),
        (lambda _, i, j, k: (clamped(i - 1), j, k), 2),
        (lambda rows, i, j, k: (rows[i], j, k), 2),
        (lambda _, i, j, k: (i, j, (k + 1) % SIZE), 1),
    ],
)
def test_axes_along_which_an_index_wraps_are_not_fused(index, axes):
    found = ELEMENTWISE.match(make_schedule(read_at(index)))
    assert found is not None
    assert found.tail == axes
