"""Declarations that a stranger may pass: scheduled and right, or refused with what to pass."""

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from autopipe import auto_schedule
from autopipe.api.compute import to_declared_module
from autopipe.compiler.graph import weights
from autopipe.compiler.loops.zero_based_axes import begin_at_zero
from autopipe.errors import ModelError
from autopipe.schedules.engines.fallback import choose_fallback
from autopipe.schedules.templates.serve import serve
from tests.schedules.tasks import CONDITIONS
from tests.support.table import each_row

RANDOM = np.random.default_rng(0)


def tensor(*shape):
    return te.placeholder(shape, "float32", name="x")


def total(shape, first, last, **options):
    """Return the sums of rows of a tensor, from one column to another."""
    x, k = tensor(*shape), te.reduce_axis((first, last), name="k")
    return [x, te.compute(shape[:1], lambda i: te.sum(x[i, k], axis=k, **options), name="total")]


def after_nothing():
    x, y = total((8, 0), 0, 0)
    return [x, te.compute((8, 3), lambda i, j: y[i] + j)]


def product(depth, first):
    a, b, k = tensor(16, depth), tensor(depth, 32), te.reduce_axis((first, depth))
    return [a, b, te.compute((16, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))]


def largest_of_nothing():
    x, k = tensor(8, 0), te.reduce_axis((0, 0))
    return [x, te.compute((8,), lambda i: te.max(x[i, k], axis=k))]


def largest_of_one():
    """Where it begins counts, if what comes is less."""
    x, k = tensor(8, 1), te.reduce_axis((0, 1))
    least = te.comm_reducer(lambda a, b: tirx.max(b, a), lambda _: tirx.const(0.5, "float32"))
    return [x, te.compute((8,), lambda i: least(x[i, k], axis=k))]


def of_no_axes():
    x = te.placeholder((), "float32", name="x")
    return [x, te.compute((), lambda: x() * 3.0)]


LEAST = np.finfo("float32").min


@each_row(
    "tensors, answer",
    [
        (total((6, 9), 3, 9), lambda x: x[:, 3:].sum(1)),
        (product(40, 8), lambda a, b: a[:, 8:] @ b[8:]),
        (total((8, 0), 0, 0), lambda x: np.zeros(8)),
        (largest_of_nothing(), lambda x: np.full(8, LEAST)),
        (total((8, 3), 1, 2), lambda x: x[:, 1]),
        (largest_of_one(), lambda x: np.maximum(x[:, 0], 0.5)),
        (after_nothing(), lambda x: np.zeros((8, 1)) + np.arange(3)),
        (product(0, 0), np.matmul),
        (of_no_axes(), lambda x: x * 3),
    ],
)
def test_what_is_declared_is_what_is_computed(tensors, answer):
    shapes = ([int(n) for n in one.shape] for one in tensors[:-1])
    inputs = [np.asarray(RANDOM.random(shape), "float32") for shape in shapes]
    (found,) = auto_schedule(tensors)(*inputs)
    wanted = np.asarray(answer(*inputs))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@each_row(
    "rows, steps, packs",
    [(1, 40, False), (8, 40, False), (9, 40, True), (1, 20, False), (2, 20, True)],
)
def test_weights_are_packed_in_a_call_only_where_they_are_used_often(rows, steps, packs):
    x, w = te.placeholder((rows, steps), name="x"), te.placeholder((24, steps), name="w")
    function = te.create_prim_func([x, w, topi.nn.dense(x, w)])
    free = function.with_attr("layout_free_buffers", [1])
    assert len(weights.list_weights(to_declared_module(free)["main"])) == packs
    planned = choose_fallback(("static",), to_declared_module(free), CONDITIONS).planned
    assert planned is not None
    assert ("packed" in planned.module.script()) == packs


def test_what_a_transpose_reads_once_keeps_its_free_layout():
    x, w = te.placeholder((30, 40), name="x"), te.placeholder((24, 40), name="w")
    function = te.create_prim_func([x, w, topi.matmul(x, topi.transpose(w))])
    assert weights.list_weights(
        to_declared_module(function.with_attr("layout_free_buffers", [1]))["main"]
    )


def test_what_has_one_step_reduces_nothing():
    x, d, r = tensor(4, 8, 14, 14), te.reduce_axis((0, 1)), te.reduce_axis((0, 1))
    shape = (4, 8, 28, 28)
    twice = te.compute(
        shape, lambda n, c, i, j: te.sum(x[n, c, i // 2 - d, j // 2 - r] / 4.0, axis=[d, r])
    )
    found = to_declared_module([x, twice])["main"]
    assert "init" not in found.script()
    kept = to_declared_module([x, topi.sum(x, axis=3)])["main"]
    assert "init" in kept.script()
    of_two = to_declared_module([x, topi.argmax(topi.reshape(x, (6272, 1)), axis=1)])["main"]
    assert "init" in of_two.script(), "which has two results"


def test_templates_are_for_axes_that_begin_at_zero():
    shifted = tvm.IRModule({"main": te.create_prim_func(total((6, 9), 3, 9))})
    assert not begin_at_zero(shifted["main"])
    assert serve(shifted, CONDITIONS.hardware) is None
    assert begin_at_zero(to_declared_module(shifted)["main"])


def extern(name):
    x = tensor(4, 4)
    made = te.extern((4, 4), [x], lambda i, o: tirx.call_packed(name, i[0], o[0]), name="made")
    return [x, topi.nn.relu(made)]


GAPS = """
@T.prim_func(s_tir=True)
def main(xs: T.handle, y: T.Buffer((4, 8), "float32")):
    x = T.match_buffer(xs, (4, 8), "float32", strides=[16, 1])
    for i, j in T.grid(4, 8):
        with T.sblock("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj]
"""


@each_row(
    "compute, said",
    [
        (lambda: extern("tvm.contrib.own"), "main calls tvm.contrib.own, which is no compute: .*"),
        (lambda: tvm.script.from_source(GAPS), "main: x has gaps .* pass a tensor without strides"),
        (lambda: total((6, 9), 0, 9, where=tensor(1)[0] > 0), r"total: .*\(`where`\): pass .*"),
        (lambda: total((6, 9), 0, 9, init=5.0), r"total: .*\(`init`\): add it .*"),
    ],
)
def test_what_would_not_be_computed_is_refused_with_what_to_pass(compute, said):
    with pytest.raises(ModelError, match=said):
        to_declared_module(compute())


def test_sorts_of_tvm_s_runtime_are_no_foreign_code():
    x = tensor(3, 20)
    assert to_declared_module([x, topi.sort(x, axis=1)])
