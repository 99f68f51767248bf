import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tvm
from tvm import te, tirx, topi
from tvm.s_tir import Schedule

from autopipe.measure.check import checked
from autopipe.schedules.analysis import movement
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates import elementwise, list_templates
from autopipe.schedules.templates.elementwise import ELEMENTWISE
from autopipe.schedules.templates.template import AnyTemplate, dump, replay_setting
from autopipe.schedules.templates.transpose import TRANSPOSE
from tests.schedules.computed import assert_same, normal
from tests.schedules.tasks import TARGET
from tests.schedules.tensors import module_of, tensor
from tests.support.table import each_row

WIDE = HardwareParams(vector_bits=512, registers=32, cores=2)


def unary(function, *shape, dtype="float32"):
    x = tensor(*shape, dtype=dtype)
    return [x, function(x)]


def binary(function, one, other):
    x, y = tensor(*one), tensor(*other)
    return [x, y, function(x, y)]


def transposed(shape, axes, dtype="float32"):
    return unary(lambda x: topi.transpose(x, axes), *shape, dtype=dtype)


def wrapped():
    return unary(lambda x: te.compute((100, 160), lambda i, j: x[i, (j + i) % 160]), 100, 160)


def joined(shapes, axis):
    tensors = [tensor(*shape) for shape in shapes]
    return [*tensors, topi.nn.relu(topi.concatenate(tensors, axis=axis))]


def shuffled(size, channels, groups):
    apart = (1, size, size, groups, channels // groups)
    return unary(
        lambda x: topi.reshape(
            topi.transpose(topi.reshape(x, apart), (0, 1, 2, 4, 3)), (1, size, size, channels)
        ),
        1, size, size, channels,
    )  # fmt: skip


def shuffled_planes():
    whole, apart = (1, 12, 5, 8), (1, 3, 4, 5, 8)
    return unary(
        lambda x: topi.reshape(
            topi.transpose(topi.reshape(x, apart), (0, 2, 1, 3, 4)), whole
        ),
        *whole,
    )  # fmt: skip


def padded(*shape, before, after):
    return unary(lambda x: topi.nn.pad(x, before, after, 1.0), *shape)


def resized(layout, *shape):
    return unary(
        lambda x: topi.image.resize2d(
            x, [0] * 4, [10, 14], layout, "nearest_neighbor", "asymmetric", "floor"
        ),
        *shape,
    )


def shifted(x):
    def value(i, j, k):
        inside = tirx.all(j % 3 == 0, k < 19)
        return tirx.if_then_else(inside, x[i, j, tirx.min(k + 1, 19)], x[i, j, k])

    return te.compute(x.shape, value)


def heads():
    return unary(lambda x: topi.reshape(topi.transpose(x, (0, 2, 1, 3)), (1, 6, 32)), 1, 4, 6, 8)


def rows_and_columns():
    x, y = tensor(24, 20), tensor(20, 24)
    return [x, y, topi.add(x, topi.transpose(y))]


def marked(rows, columns, beyond=0):
    """Return a quotient of each row where a mark of 64 bits says so, as the gradient of a loss."""
    at, over, under = tensor(rows, dtype="int64"), tensor(rows), tensor(rows)

    def value(i, j):
        inside = tirx.all(j == at[i] % columns, i + beyond < rows)
        return tirx.if_then_else(inside, over[i + beyond] / under[i], tirx.const(0.0))

    return [at, over, under, te.compute((rows, columns), value)]


IN_ORDER = {
    "rows that wrap around": wrapped,
    "add": lambda: binary(topi.add, (3, 5, 7), (3, 5, 7)),
    "long": lambda: binary(topi.add, (40, 64), (40, 64)),
    "bias": lambda: binary(topi.add, (1, 6, 6, 48), (1, 1, 1, 48)),
    "odd_bias": lambda: binary(topi.add, (1, 6, 6, 35), (35,)),
    "colours": lambda: binary(topi.multiply, (1, 6, 6, 3), (3,)),
    "planes_bias": lambda: binary(topi.add, (1, 6, 5, 8), (1, 6, 1, 1)),
    "concat": lambda: joined([(1, 5, 5, 32), (1, 5, 5, 16), (1, 5, 5, 64)], 3),
    "odd_concat": lambda: joined([(4, 9), (4, 30)], 1),
    "short_concat": lambda: joined([(4, 5, 3), (4, 5, 2)], 2),
    "concat_of_planes": lambda: joined([(1, 3, 5, 8), (1, 4, 5, 8)], 1),
    "concat_of_vectors": lambda: joined([(20,), (50,)], 0),
    "pad": lambda: padded(1, 6, 6, 16, before=[0, 1, 2, 0], after=[0, 2, 1, 0]),
    "pad_channels": lambda: padded(1, 4, 4, 20, before=[0, 0, 0, 3], after=[0, 0, 0, 9]),
    "slice": lambda: unary(lambda x: topi.strided_slice(x, [1, 3], [9, 28], [2, 1]), 10, 30),
    "every_other": lambda: unary(lambda x: topi.strided_slice(x, [0, 1], [9, 30], [1, 2]), 10, 30),
    "reversed": lambda: unary(lambda x: topi.flip(x, axis=1), 6, 24),
    "resize": lambda: resized("NHWC", 1, 5, 7, 24),
    "resize_planes": lambda: resized("NCHW", 1, 3, 5, 7),
    "heads": heads,
    "shuffled_planes": shuffled_planes,
    "reshape": lambda: unary(lambda x: topi.reshape(x, (12, 35)), 4, 3, 35),
    "units": lambda: unary(lambda x: topi.reshape(x, (1, 30, 1, 1)), 1, 1, 1, 30),
    "single": lambda: unary(topi.tanh, 1, 1),
    "bool": lambda: unary(topi.logical_not, 6, 70, dtype="bool"),
    "cast": lambda: unary(lambda x: topi.cast(x, "float32"), 6, 70, dtype="int64"),
    "bytes": lambda: unary(lambda x: topi.cast(x, "int32"), 6, 64, dtype="int8"),
    "some_shifted": lambda: unary(shifted, 4, 6, 20),
    "triangle": lambda: unary(lambda x: topi.trilu(x, tirx.const(0), upper=False), 8, 64),
    "marked": lambda: marked(7, 30),
    "marked_beyond": lambda: marked(7, 30, beyond=1),
    "zeros_between": lambda: unary(lambda x: topi.nn.dilate(x, [1, 1, 2, 2]), 4, 8, 7, 9),
}
CROSSING = {
    "transpose": lambda: transposed((24, 40), (1, 0)),
    "odd_columns": lambda: transposed((24, 35), (1, 0)),
    "odd_rows": lambda: transposed((35, 24), (1, 0)),
    "to_planes": lambda: transposed((1, 7, 8, 20), (0, 3, 1, 2)),
    "from_planes": lambda: transposed((1, 20, 7, 8), (0, 2, 3, 1)),
    "colours_to_planes": lambda: transposed((1, 9, 9, 3), (0, 3, 1, 2)),
    "colours_from_planes": lambda: transposed((1, 3, 9, 9), (0, 2, 3, 1)),
    "shuffle": lambda: shuffled(5, 24, 4),
    "shuffle_many": lambda: shuffled(3, 144, 12),
    "shuffle_odd": lambda: shuffled(3, 35, 5),
    "with_another": rows_and_columns,
    "both_odd": lambda: transposed((7, 11, 13), (2, 1, 0)),
    "blocks": lambda: unary(lambda x: topi.nn.depth_to_space(x, 2), 1, 16, 6, 6),
    "bools": lambda: transposed((24, 40), (1, 0), "bool"),
    "bytes": lambda: transposed((24, 40), (1, 0), "int8"),
    "wide": lambda: transposed((24, 40), (1, 0), "int64"),
}
CASES: list[tuple[AnyTemplate, Mapping[str, Callable[[], Any]], str]] = [
    *((ELEMENTWISE, IN_ORDER, case) for case in IN_ORDER),
    *((TRANSPOSE, CROSSING, case) for case in CROSSING),
]
NAMES = [f"{template.name}-{case}" for template, _, case in CASES]


def serving(module):
    """Return the first of the two templates that serves a function, and what it found."""
    for template in list_templates():
        if template in (TRANSPOSE, ELEMENTWISE):
            found = template.match(Schedule(module))
            if found is not None:
                return template, found
    return None


def moved(tensors):
    found = movement.match_movement(Schedule(module_of(tensors)))
    assert found is not None
    return found


@pytest.mark.parametrize(("template", "cases", "case"), CASES, ids=NAMES)
def test_every_setting_of_the_knobs_is_right(template, cases, case, monkeypatch):
    monkeypatch.setattr(elementwise, "ELEMENTS", 1)
    module = module_of(cases[case]())
    served = serving(module)
    assert served is not None
    assert served[0] is template
    found = served[1]
    every = list(template.settings(found, WIDE))
    assert template.fill(found, WIDE) in every
    some = {template.fill(found, WIDE), every[0], every[-1], every[len(every) // 2]}
    documents = [json.loads(dump(template, knobs)) for knobs in some]
    made = [replay_setting(module, template, document, WIDE).mod for document in documents]
    assert_same(module, *made, inputs=[normal], rtol=1e-6)


@pytest.mark.parametrize("case", ["concat", "odd_concat", "pad_channels", "resize", "cast"])
def test_it_passes_the_check_that_winners_have_to_pass(case):
    module = module_of(IN_ORDER[case]())
    sch = make_schedule(module)
    found = ELEMENTWISE.match(sch)
    assert found is not None
    ELEMENTWISE.apply(sch, found, ELEMENTWISE.fill(found, WIDE))
    checked(module, sch.mod, TARGET)


def test_functions_that_reduce_are_left_to_others():
    assert serving(module_of(unary(lambda x: topi.sum(x, axis=1), 8, 16))) is None


def test_functions_with_two_outputs_are_left_to_others():
    x = tensor(8, 16)
    y = topi.tanh(x)
    assert serving(module_of([x, y, topi.add(y, x)])) is None


def test_functions_of_any_size_are_left_to_others():
    assert serving(module_of(unary(topi.tanh, te.var("n"), 8))) is None


@pytest.mark.parametrize(
    ("case", "parts"),
    [("concat", (32, 16, 64)), ("pad_channels", (3, 20, 9)), ("pad", ()), ("concat_of_planes", ())],
)
def test_the_last_axis_is_divided_where_conditions_change(case, parts):
    assert moved(IN_ORDER[case]()).parts == parts


@each_row(
    "case, tail",
    [("add", 3), ("bias", 1), ("planes_bias", 2), ("concat_of_planes", 2), ("concat", 1),
     ("resize", 1), ("units", 3), ("shuffled_planes", 2), ("heads", 1)],
)  # fmt: skip
def test_axes_that_are_walked_as_one_are_known(case, tail):
    assert moved(IN_ORDER[case]()).tail == tail


@pytest.mark.parametrize("case", ["concat", "odd_concat", "pad_channels", "short_concat"])
def test_the_last_axis_is_written_out_where_conditions_change(case):
    sch = make_schedule(module_of(IN_ORDER[case]()))
    found = ELEMENTWISE.match(sch)
    assert found is not None
    ELEMENTWISE.apply(sch, found, ELEMENTWISE.fill(found, WIDE))
    assert "T.unroll" in sch.mod.script()


def test_axes_of_dynamic_sizes_stay_where_the_first_axis_has_one_element():
    """A reshape of (height, width, 2), whose first index is known to be 0, is inlined as it is."""
    height, width = (tvm.tirx.Var(name, "int64") for name in ("height", "width"))
    x = te.placeholder((height, width, 2), "int64")
    one = tvm.tirx.const(1, "int64")
    sch = make_schedule(
        tvm.IRModule({"main": te.create_prim_func([x, topi.reshape(x, (one, height * width, 2))])})
    )
    block = sch.get(movement.inline_into_last(sch))
    assert [str(axis.var) for axis in block.iter_vars] == ["v_ax0", "v_ax1", "v_ax2"]


def test_a_tensor_without_axes_may_be_read_beside_a_division():
    x, scale = tensor(4, 6), tensor()
    wide = te.compute((4, 12), lambda i, j: x[i, j // 2] * scale[()])
    module = module_of([x, scale, wide])
    sch = make_schedule(module)
    found = ELEMENTWISE.match(sch)
    assert found is not None
    ELEMENTWISE.apply(sch, found, ELEMENTWISE.fill(found, WIDE))
    assert_same(module, sch.mod, inputs=[normal], rtol=0)


def test_a_second_thread_pays_by_work_and_not_by_the_number_of_elements():
    def shared(tensors):
        return ELEMENTWISE.fill(moved(tensors), WIDE).threads

    x, y = tensor(256, 256), tensor(256, 256)
    assert shared([x, y, topi.add(x, y)])  # 9 us on one thread
    assert not shared([topi.full((256, 256), "float32", 0.0)])  # 3 us
    x, y = tensor(180, 180), tensor(180, 180)
    assert not shared([x, y, topi.add(x, y)])  # 4 us
    assert shared([x, topi.exp(x)])  # 16 us
    narrow = tensor(256, 256, dtype="int8")
    assert not shared([narrow, topi.add(narrow, narrow)])


@each_row(
    "index, threads",
    [
        (lambda _, i: i, True),  # 6 us on one thread
        (lambda _, i: i // 2, False),  # 4 us: each element is read once for two
        (lambda _, i: i // 3, True),  # 43 us
        (lambda rows, i: rows[i], True),
    ],
)
def test_what_is_read_again_takes_less(index, threads):
    x, rows = tensor(1 << 16), tensor(1 << 16, dtype="int32")
    y = te.compute(x.shape, lambda i: x[index(rows, i)] * 2.0)
    assert ELEMENTWISE.fill(moved([x, rows, y]), WIDE).threads == threads


@each_row(
    "index, threads",
    [
        (lambda _, i: te.max(te.min(i + 3, 39999), 0), False),  # 4 us
        (lambda _, i: (i + 3) % 40000, False),
        (lambda _, i: i ^ 1, False),
        (lambda rows, i: rows[i], True),  # 10 us
    ],
)
def test_neighbours_at_borders_are_no_lookup(index, threads):
    x, rows = tensor(40000), tensor(40000, dtype="int32")
    y = te.compute(x.shape, lambda i: x[index(rows, i)] * 2.0)
    assert ELEMENTWISE.fill(moved([x, rows, y]), WIDE).threads == threads


def test_threads_share_parts_of_a_row_that_is_left_to_llvm():
    x = tensor(1, 64, 56, 56)
    script = filled([x, te.compute(x.shape, lambda *i: x(*i) > 0.5)]).script()
    assert "T.parallel(64)" in script
    assert "range(3136)" in script
    x = tensor(200003)
    script = filled([x, te.compute(x.shape, lambda i: x[i] > 0.5)]).script()
    assert "T.parallel" in script


@pytest.mark.parametrize("columns", [19, 37])
def test_an_odd_row_is_one_vector(columns):
    unit = te.compute((80, columns), lambda i, j: tirx.Select(i == j, 1.0, 0.0))
    assert f"T.vectorized({columns})" in filled([unit]).script()
    x, y = tensor(80, columns), tensor(columns)
    assert ELEMENTWISE.fill(moved([x, y, topi.add(x, y)]), WIDE).width == columns
    assert ELEMENTWISE.fill(moved([x, topi.tanh(x)]), WIDE).width != columns  # all is one row


@pytest.mark.parametrize(("columns", "width"), [(4, 4), (8, 8), (7, 1)])
def test_a_short_row_that_is_looked_up_is_one_vector(columns, width):
    x, at = tensor(50, columns), tensor(64, dtype="int32")
    rows = te.compute((64, columns), lambda i, j: x[at[i], j])
    assert ELEMENTWISE.fill(moved([x, at, rows]), WIDE).width == width
    crossed = te.compute((64, columns), lambda i, j: x[at[(i + j) % 64], j])
    assert ELEMENTWISE.fill(moved([x, at, crossed]), WIDE).width == 1


def test_few_threads_do_not_share_what_is_looked_up_under_conditions():
    """LLVM makes vectors of it on one thread only."""
    image, at = tensor(16, 40), tensor(64, 1000, dtype="int32")

    def value(i, j):
        inside = tirx.all(at[i, j] >= 0, at[i, j] < 40)
        return tirx.if_then_else(inside, tirx.exp(image[i // 4, at[i, j]]), 0.0)

    found = moved([image, at, te.compute((64, 1000), value)])
    many = HardwareParams(vector_bits=512, registers=32, cores=16)
    assert [ELEMENTWISE.fill(found, each).threads for each in (WIDE, many)] == [False, True]
    plain = te.compute((64, 1000), lambda i, j: tirx.exp(image[i // 4, at[i, j]]))
    assert ELEMENTWISE.fill(moved([image, at, plain]), WIDE).threads


def test_rows_that_wrap_around_are_left_to_llvm():
    """TVM's vectors load each element by itself: four times as long."""
    assert ELEMENTWISE.fill(moved(wrapped()), WIDE).width == 1


def test_the_copy_of_an_image_to_a_row_is_a_row():
    x = tensor(4, 8, 6, 8)
    module = module_of([x, topi.reshape(x, (4, 384))])
    sch = make_schedule(module)
    found = ELEMENTWISE.match(sch)
    assert found is not None
    ELEMENTWISE.apply(sch, found, elementwise.Run(8))
    assert "//" not in sch.mod.script()
    assert_same(module, sch.mod, inputs=[normal], rtol=0)


def test_what_is_made_of_its_own_index_is_left_to_llvm():
    numbers = te.compute((64, 64), lambda i, j: j.astype("float32"), name="y")
    assert ELEMENTWISE.fill(moved([numbers]), WIDE).width == 1


@pytest.mark.parametrize("branch", [tirx.Select, tirx.if_then_else])
def test_a_unit_matrix_is_chosen_in_vectors(branch):
    unit = te.compute((32, 64), lambda i, j: branch(i == j, tirx.const(1.0), tirx.const(0.0)))
    script = filled([unit]).script()
    assert "T.vectorized" in script
    assert "if_then_else" not in script


def test_llvm_makes_the_vectors_where_two_registers_do_not_divide_a_row():
    assert "T.vectorized" not in filled(unary(topi.exp, 1000)).script()
    assert "T.vectorized" in filled(unary(topi.exp, 1024)).script()


def test_both_sides_of_a_choice_are_read_first_where_they_are_inside_of_their_tensors():
    assert "_read" in filled(marked(7, 30)).script()
    assert "_read" not in filled(marked(7, 30, beyond=1)).script()


def test_rows_of_a_clamped_image_stay_a_loop():
    x = tensor(32, 9, 9)
    clamped = te.compute((32, 9, 9), lambda n, i, j: x[n, te.max(i - 1, 0), te.max(j - 1, 0)])
    assert "n_fused, i" in filled([x, clamped]).script()


def test_single_elements_are_not_written_out():
    assert "T.unroll" not in filled(IN_ORDER["some_shifted"]()).script()


def filled(tensors):
    """Return a function with the setting that is taken without measuring."""
    sch = make_schedule(module_of(tensors))
    found = ELEMENTWISE.match(sch)
    assert found is not None
    ELEMENTWISE.apply(sch, found, ELEMENTWISE.fill(found, WIDE))
    return sch.mod
