"""A count of operations with a bound."""

import math

import tvm
from tvm import te, topi

from autopipe.compiler.loops import count_operations
from autopipe.compiler.tasks import make_task, make_workload
from autopipe.tasks.op_info import OpInfo


def most(*tensors):
    return count_operations.bound_operations(te.create_prim_func(tensors))


def test_a_product_and_a_pool_whose_windows_differ():
    x, y = (te.placeholder((8, 8), name=name) for name in "xy")
    assert most(x, y, topi.nn.matmul(x, y)) == 2 * 8**3
    image = te.placeholder((1, 4, 56, 56), name="image")
    pooled = topi.nn.adaptive_pool(image, (6, 6), "avg")
    bound = most(image, pooled)
    assert 4 * 36 * 10 * 10 < bound < 8 * 4 * 36 * 11 * 11
    task = make_task(
        0, make_workload(te.create_prim_func([image, pooled])), ["pool"], OpInfo(kind="opaque")
    )
    assert 0 <= task.flops <= bound


def test_a_loop_that_nothing_bounds_has_no_count():
    n = te.placeholder((1,), "int32", name="n")
    x = te.placeholder((100,), name="x")
    k = te.reduce_axis((0, n[0]), name="k")
    total = te.compute((1,), lambda _: te.sum(x[k], axis=k), name="total")
    function = te.create_prim_func([n, x, total])
    assert math.isinf(count_operations.bound_operations(function))
    assert isinstance(function, tvm.tirx.PrimFunc)
