"""Vectors whose elements all make the same choice make it once."""

from random import Random
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule

from autopipe.compiler.codegen.choose_once_per_vector import choose_once_per_vector
from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.target.target import make_host_target
from tests.support.table import each_row

LANES = 16


def concatenation(border, total, lanes=LANES):
    """Return two tensors joined at a border, in unrolled parts of vectors."""
    x = te.placeholder((border,), name="x")
    w = te.placeholder((total - border,), name="w")
    y = te.compute((total,), lambda i: tirx.if_then_else(i < border, x[i], w[i - border]), "y")
    sch = Schedule(tvm.IRModule({"main": te.create_prim_func([x, w, y])}))
    (loop,) = sch.get_loops(sch.get_sblock("y"))
    part, vector = sch.split(loop, [None, lanes])
    sch.vectorize(vector)
    sch.unroll(part)
    return sch.mod["main"]


def count_vector_choices(function):
    """Count the comparisons that name the variable of a vectorized loop, or an axis made of it."""
    found: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tirx.LT, found.append))
    names = [str(one) for one in found]
    return sum("v_i" in name or "i_1" in name for name in names)


@each_row("border, total, left", [(64, 128, 0), (48, 128, 0), (40, 128, 1), (16, 20 * 16, 0)])
def test_a_border_between_vectors_is_asked_once(border, total, left):
    function = concatenation(border, total)
    assert count_vector_choices(function) == 1
    assert count_vector_choices(choose_once_per_vector(function)) == left


def test_what_has_no_such_choice_stays():
    function = concatenation(40, 128)
    assert choose_once_per_vector(function).same_as(function)


@each_row("border, total", [(64, 128), (40, 128), (16, 96)])
def test_the_numbers_stay(border, total):
    library = compile_kernel(
        tvm.IRModule({"main": concatenation(border, total)}), make_host_target(1)
    )
    x, w = (np.arange(n, dtype="float32") + n for n in (border, total - border))
    result = tvm.runtime.empty((total,))
    library["main"](*map(tvm.runtime.tensor, (x, w)), result)
    np.testing.assert_array_equal(result.numpy(), np.concatenate([x, w]))


@pytest.mark.parametrize("seed", range(40))
def test_random_comparisons_come_out_the_same(seed):
    random = Random(seed)
    lanes = random.choice([2, 4, 8, 16])
    scale, factor = random.choice([1, 2, lanes, 2 * lanes]), random.choice([-2, -1, 1, 2])
    part, lane = tirx.Var("part", "int64"), tirx.Var("lane", "int64")
    kind = random.choice([tirx.LT, tirx.LE, tirx.GT, tirx.GE])
    index = part * scale * abs(factor) + factor * lane + random.randrange(-3, 4)
    comparison = kind(index, tirx.const(random.choice([0, 5, lanes, 3 * lanes]), "int64"))
    buffer = tirx.decl_buffer((4096,), "int32")
    one, zero = (tirx.const(number, "int32") for number in (1, 0))
    value = tirx.if_then_else(comparison, one, zero)
    store = tirx.BufferStore(buffer, value, [part * lanes + lane])
    vector = tirx.For(lane, 0, lanes, tirx.ForKind.VECTORIZED, store)
    loop = tirx.For(part, 0, 8, tirx.ForKind.SERIAL, vector)
    after = choose_once_per_vector(tirx.PrimFunc([buffer], loop))
    found: list[Any] = []
    tvm_ffi.structural_walk(after.body, ((tirx.LT, tirx.LE, tirx.GT, tirx.GE), found.append))
    known = tvm.sym.Analyzer()
    for outer in range(8):
        for inner in range(lanes):
            places = [(part, outer), (lane, inner)]
            before, now = (
                int(known.simplify(_at(expression, places)))
                for expression in (comparison, found[0])
            )
            assert before == now, (comparison, found[0], places)


def _at(expression, places):
    def find_value(var):
        return next((tirx.const(n, "int64") for one, n in places if one.same_as(var)), var)

    return tvm_ffi.structural_map(expression, (tirx.Var, find_value))
