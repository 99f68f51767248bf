"""Rows that are read in steps: loops are nested, and a period of divided indices is written out."""

import json

from tvm import te, tirx, topi

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.elementwise import ELEMENTWISE
from autopipe.schedules.templates.serve import serve
from autopipe.schedules.templates.template import dump, replay_setting
from tests.schedules.computed import assert_same, normal
from tests.schedules.tensors import module_of
from tests.support.table import each_row

WIDE = HardwareParams(vector_bits=512, registers=32, cores=2)


def of(function, *shape):
    x = te.placeholder(shape, "float32", name="x")
    return [x, function(x)]


def lattice(rows, columns):
    x, y = (te.placeholder((rows, columns), "float32", name=name) for name in "xy")

    def value(i, j):
        return tirx.if_then_else((i + 2 * j) % 3 == 0, x[i, j // 3], y[i, j])

    return [x, y, te.compute((rows, columns), value)]


def served_by(module):
    found = serve(module, WIDE)
    assert found is not None
    return found


@each_row(
    "tensors",
    [
        of(lambda x: topi.nn.dilate(x, (1, 1, 2, 2)), 1, 16, 33, 37),
        of(lambda x: topi.nn.dilate(x, (1, 4)), 3, 40),
        of(lambda x: topi.nn.dilate(x, (3, 5)), 9, 7),
        of(lambda x: topi.repeat(x, 3, 1), 5, 13),
        of(lambda x: topi.nn.relu(topi.nn.space_to_depth(x, 2)), 1, 8, 14, 30),
        of(lambda x: topi.nn.space_to_depth(x, 3), 2, 5, 42, 63),
        of(lambda x: te.compute((40, 50), lambda i, j: x[i // 7, j // 6]), 6, 9),
        of(lambda x: te.compute((9, 50), lambda i, j: x[8 - i, j // 2 * 3]), 9, 75),
        lattice(130, 128),
        lattice(7, 11),
    ],
)
def test_periods_are_written_out_and_the_same_is_computed(tensors):
    module = module_of(tensors)
    found = ELEMENTWISE.match(make_schedule(module))
    assert found is not None
    assert ELEMENTWISE.fill(found, WIDE).planes
    nested = [knobs for knobs in ELEMENTWISE.settings(found, WIDE) if knobs.planes]
    documents = [json.loads(dump(ELEMENTWISE, knobs)) for knobs in nested]
    made = [replay_setting(module, ELEMENTWISE, document, WIDE).mod for document in documents]
    assert [text.count("T.parallel") for text in (one.script() for one in made)] == [1, 0]
    assert "if_then_else" not in made[0].script()  # conditions on rests are known
    assert_same(module, *made, inputs=[normal], rtol=0)


@each_row(
    "tensors",
    [
        of(lambda x: topi.reshape(x, (5, 400)), 5, 100, 4),  # a row of memory
        of(lambda x: te.compute((90, 64), lambda i, j: x[i, j // 9]), 90, 8),  # a long period
        of(lambda x: te.compute((50,), lambda i: x[i // 2]), 25),  # no plane
        of(lambda x: te.compute((90, 64), lambda i, j: x[i // 2, j]), 45, 64),  # whole rows
    ],
)
def test_other_rows_have_no_nested_loops(tensors):
    match = ELEMENTWISE.match(make_schedule(module_of(tensors)))
    assert match is not None
    assert not any(knobs.planes for knobs in ELEMENTWISE.settings(match, WIDE))


def test_a_second_thread_takes_part_where_that_pays():
    small, large = (of(lambda x: topi.repeat(x, 2, 1), 64, size) for size in (64, 2048))
    threads = [served_by(module_of(one)).knobs.threads for one in (small, large)]
    assert threads == [False, True]
