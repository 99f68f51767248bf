"""Templates that are asked last, since others are faster."""

import pytest
from tvm import te, topi

from autopipe.api.compute import to_declared_module
from autopipe.measure.check import checked
from autopipe.schedules.engines.fallback import choose_fallback
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.window import WINDOW
from tests.schedules.computed import assert_same, normal
from tests.schedules.tasks import CONDITIONS
from tests.schedules.tensors import tensor


def chosen(tensors):
    found = choose_fallback(("static",), to_declared_module(tensors), CONDITIONS)
    assert found.planned is not None
    return found.planned


def test_windows_give_way_to_tiles_where_outputs_share_nothing():
    x = tensor(30, 40)
    assert '"contraction"' in chosen([x, topi.sum(x, axis=0)]).schedule
    assert WINDOW.match(make_schedule(to_declared_module([x, topi.sum(x, axis=0)]))) is not None
    image = tensor(1, 3, 16, 16)
    pooled = topi.nn.pool2d(image, [3, 3], [1, 1], [1, 1], [1] * 4, "avg")
    assert '"window"' in chosen([image, pooled]).schedule


@pytest.mark.parametrize("rows", [1, 4])
def test_no_operand_is_copied_for_few_rows(rows):
    x, w, k = tensor(rows, 200), tensor(96, 200), te.reduce_axis((0, 200))
    product = [x, w, te.compute((rows, 96), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k))]
    found = chosen(product)
    assert "packed" not in found.module.script()
    assert_same(to_declared_module(product), found.module, inputs=(normal,), of_largest=1e-5)


def test_no_operand_is_copied_for_one_row_of_each_head():
    query, keys, k = tensor(12, 1, 64), tensor(12, 40, 64), te.reduce_axis((0, 64))
    scores = te.compute((12, 1, 40), lambda h, i, j: te.sum(query[h, i, k] * keys[h, j, k], axis=k))
    found = chosen([query, keys, scores])
    assert "packed" not in found.module.script()
    assert_same(
        to_declared_module([query, keys, scores]), found.module, inputs=(normal,), of_largest=1e-5
    )


def test_tiles_give_way_to_rows_of_few_steps():
    table, at, k = tensor(50, 33), te.placeholder((57, 9), "int32"), te.reduce_axis((0, 9))
    looked_up = [
        table, at, te.compute((57, 33), lambda i, j: te.sum(table[at[i, k], j], axis=k)),
    ]  # fmt: skip
    bytes_ = te.placeholder((20, 3, 40), "uint8")
    c = te.reduce_axis((0, 3))
    total = te.compute((20, 40), lambda i, j: te.sum(bytes_[i, c, j].astype("int32"), axis=c))
    longer, many = tensor(20, 10, 40), te.reduce_axis((0, 10))
    last = te.compute((20, 40), lambda i, j: te.max(longer[i, many, j], axis=many))
    flat, rows = tensor(3, 40), te.reduce_axis((0, 3))
    alone = te.compute((40,), lambda j: te.max(flat[rows, j], axis=rows))
    planes = tensor(2, 5, 6, 8)
    for tensors, form in (
        ([planes, topi.sum(planes, axis=1)], '"contraction"'),  # of rows of 48
        (looked_up, '"rows"'),
        ([bytes_, total], '"rows"'),
        ([longer, last], '"contraction"'),
        ([flat, alone], '"contraction"'),
    ):
        found = chosen(tensors)
        assert form in found.schedule
        checked(to_declared_module(tensors), found.module, CONDITIONS.target)
