"""No template is wrong for dynamic shapes, at any size: random functions, and some that once were.

A template goes by the function at likely sizes. There, an axis may have one element that has more
at others, two axes may be equally long, and a sum of sizes is a number like any other.
"""

from random import Random

import pytest
import tvm
from tvm import te, topi

from autopipe.compiler.dynamic_sizes import kernel_sizes
from autopipe.compiler.target.target import make_host_target
from autopipe.measure.cases import list_instances
from autopipe.measure.check import NotChecked, PlainLoops, WrongAnswer, checked
from autopipe.schedules.engines import default
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates import TEMPLATES, rows
from autopipe.schedules.templates.contraction import CONTRACTION
from autopipe.schedules.templates.rows import ROWS
from autopipe.schedules.templates.serve import serve
from autopipe.schedules.templates.template import Matcher, match_function
from tests.schedules.dynamic_functions import FAMILIES, drawn
from tests.support.seeds import fuzz_seeds

TARGET = make_host_target(2)
HARDWARE = HardwareParams.of(TARGET)
SEEDS = fuzz_seeds(100, 130)
"""Of the slow test."""


def schedules(workload, seed):
    """Yield a label and a schedule: of each template, with two settings, and without one."""
    for template in TEMPLATES:
        if not template.serves_dynamic:
            continue
        try:
            found = Matcher.of(workload).match(template)
            every = list(template.settings(found, HARDWARE)) if found is not None else []
            drawn_ones = Random(seed).sample(every, min(1, len(every)))
            knobs = [template.fill(found, HARDWARE), *drawn_ones] if every else []
        except RuntimeError:
            continue
        for setting in knobs:
            sch, found = match_function(workload, template)
            try:
                template.apply(sch, found, setting)
            except RuntimeError:  # what TVM refuses is for the next template
                continue
            yield f"{template.name} {setting}", sch.mod
    yield "default", default.schedule(workload, TARGET)


def judge(family, seed):
    """Compare every schedule of a random function with its plain loops; return what is wrong."""
    workload = drawn(family, seed)
    plain = PlainLoops(workload, TARGET)
    wrong = []
    for label, scheduled in schedules(workload, seed):
        try:
            plain.check(scheduled)
        except WrongAnswer as error:
            wrong.append(f"{family} {seed}, {label}: {error}")
    return wrong


@pytest.mark.parametrize("family", FAMILIES)
def test_a_random_function_is_right_at_every_size(family):
    assert judge(family, seed=1) == []


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("products", 100013),  # a loop for columns too few for a tile, which there never are
        ("convolutions", 100016),  # a border along an axis that is a sum, in one loop with others
    ],
)
def test_a_function_that_was_once_wrong_is_right(family, seed):
    assert judge(family, seed) == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_random_functions_are_right_at_every_size(family):
    wrong = []
    for seed in SEEDS:
        try:
            wrong += judge(family, seed)
        except NotChecked:  # plain loops of TVM itself that read outside of a tensor
            continue
    assert wrong == []


def module(tensors, known):
    function = te.create_prim_func(tensors, index_dtype_override="int64")
    return tvm.IRModule({"main": function.with_attr(kernel_sizes.SIZES, known)})


def scores():
    """Softmax of attention with a cache: one new token is likely, and then the rows are heads."""
    new, past = te.var("new", "int64"), te.var("past", "int64")
    x = te.placeholder((1, 2, new, past + new), name="x")
    mask = te.placeholder((new, past + new), name="mask")
    y = topi.nn.softmax(topi.add(topi.multiply(x, 0.125), mask))
    return module([x, mask, past, y], [[1, 1, 40], [1, 16, 40]])


def squares():
    """The root of the mean of squares of each token, of which one is likely."""
    x = te.placeholder((1, te.var("new", "int64"), 48), name="x")
    mean = topi.multiply(topi.sum(topi.multiply(x, x), -1, keepdims=True), 1 / 48)
    y = topi.divide(x, topi.sqrt(topi.add(mean, 1e-5)))
    return module([x, y], [[1, 1, 40]])


@pytest.mark.parametrize("made", [scores, squares])
def test_rows_of_which_one_is_likely_are_all_computed(made, monkeypatch):
    workload = made()
    served = serve(workload, HARDWARE)
    assert served is not None
    assert served.template is ROWS
    checked(workload, served.schedule.mod, TARGET)
    monkeypatch.delattr(rows.RowsTemplate, "prove_at_every_size")
    wrong = serve(workload, HARDWARE)
    assert wrong is not None
    with pytest.raises(WrongAnswer, match="random inputs"):
        checked(workload, wrong.schedule.mod, TARGET)


def test_a_row_that_reads_another_row_is_for_another_template():
    n = te.var("n", "int64")
    x = te.placeholder((n, 40), name="x")
    total = topi.sum(x, 1)
    y = te.compute((n, 40), lambda i, j: x[i, j] - total[n - 1 - i])
    workload = module([x, y], [[1, 1, 40]])
    assert Matcher.of(workload).match(ROWS) is None


def test_an_operand_that_is_copied_may_have_no_elements():
    """A process that divides by its size, to see what is written of the copy, ends by SIGFPE."""
    n, m = te.var("n", "int64"), te.var("m", "int64")
    x, w = te.placeholder((9, n, n * 8), name="x"), te.placeholder((9, n * 8, m * 9 - 1), name="w")
    k = te.reduce_axis((0, n * 8), "k")
    y = te.compute((9, n, m * 9 - 1), lambda b, i, j: te.sum(x[b, i, k] * w[b, k, j], k))
    workload = module([x, w, m, topi.nn.relu(y)], [[0, 3, 9], [2, 3, 9]])
    _, found = match_function(workload, CONTRACTION)
    packed = next(each for each in CONTRACTION.settings(found, HARDWARE) if each.packed)
    sch, found = match_function(workload, CONTRACTION)
    CONTRACTION.apply(sch, found, packed)
    checked(workload, sch.mod, TARGET)


def test_a_schedule_is_checked_far_above_the_likely_sizes():
    shapes = [shape_of(one) for one in list_instances(scores())]
    assert [1, 2, 1, 2] in shapes
    assert [1, 2, 40, 80] in shapes
    x = te.placeholder((te.var("n", "int64"), 64), name="x")
    endless = module([x, topi.nn.relu(x)], [[1, 2, 1 << 30]])
    assert max(shape_of(one)[0] for one in list_instances(endless)) == 65


def shape_of(instance):
    """Return the shape of the first parameter."""
    return list(instance.arguments(0)[0].shape)
