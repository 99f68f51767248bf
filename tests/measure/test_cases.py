"""The sizes at which a schedule for dynamic shapes is checked."""

import tvm
from tvm import te, topi

from autopipe.compiler.dynamic_sizes import kernel_sizes
from autopipe.measure.cases import CASES, count_stores, list_instances


def multiply(width, likely, largest):
    """Multiply a batch of matrices, of dynamic size and height."""
    x = te.placeholder((te.var("batch", "int64"), te.var("rows", "int64"), width), name="x")
    w = te.placeholder((1, width, width), name="w")
    k = te.reduce_axis((0, width), "k")
    y = te.compute(
        (*x.shape[:2], width), lambda b, i, j: te.sum(x[b, i, k] * w[0, k, j], k), name="y"
    )
    function = te.create_prim_func([x, w, topi.nn.relu(y)], index_dtype_override="int64")
    sizes = [[1, most, top] for most, top in zip(likely, largest, strict=True)]
    return tvm.IRModule({"main": function.with_attr(kernel_sizes.SIZES, sizes)})


def list_sizes(workload):
    """Return (case, sizes) of each instance."""
    return [(one.case, tuple((one.sizes or {}).values())) for one in list_instances(workload)]


def test_one_case_is_at_many_sizes_and_the_others_at_one_of_them():
    sized_cases = list_sizes(multiply(8, [4, 20], [9, 99]))
    random = [sizes for case, sizes in sized_cases if case == "random"]
    assert random[:2] == [(4, 21), (1, 1)]
    assert len(set(random)) == len(random) > 8
    others = {sizes for case, sizes in sized_cases if case != "random"}
    assert len(others) == 1
    assert others < set(random[2:])
    assert {case for case, _ in sized_cases} == set(CASES)


def test_short_loops_are_checked_up_to_the_largest_sizes():
    assert (9, 99) in {sizes for _, sizes in list_sizes(multiply(8, [1, 2], [9, 99]))}


def test_long_loops_are_checked_above_the_likely_sizes_once():
    workload = multiply(256, [1, 400], [4, 4000])
    random = [sizes for case, sizes in list_sizes(workload) if case == "random"]
    stores = [
        count_stores(workload["main"].body, {"batch": batch, "rows": rows})
        for batch, rows in random
    ]
    assert random[0] == (1, 401)
    assert max(stores[2:]) <= stores[0] / 4
    assert {batch for batch, _ in random[2:]} == {2, 3, 4}


def test_a_size_that_has_one_value_is_checked_there():
    assert list_sizes(multiply(8, [1, 1], [1, 1])) == [(case, (1, 1)) for case in CASES]
