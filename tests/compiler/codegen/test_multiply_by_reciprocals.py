"""What a loop leaves alone is divided by once, unless that would change a rounding."""

import numpy as np
import tvm
import tvm_ffi
from tvm.script import tirx as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.codegen.multiply_by_reciprocals import multiply_by_reciprocals
from autopipe.compiler.graph import elementary
from autopipe.compiler.target.target import make_host_target
from tests.support.table import each_row


@T.prim_func(s_tir=True)
def shares(given: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (4, 64), "float32")
    y = T.match_buffer(made, (4, 64), "float32")
    for i in range(4):
        total = T.sblock_alloc_buffer((1,), "float32", scope="local")
        total[0] = x[i, 0] + x[i, 63]
        for j in range(64):
            y[i, j] = T.exp(x[i, j]) / total[0]


@T.prim_func(s_tir=True)
def changing(given: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (4, 64), "float32")
    y = T.match_buffer(made, (4, 64), "float32")
    for i in range(4):
        total = T.sblock_alloc_buffer((1,), "float32", scope="local")
        total[0] = T.float32(1)
        for j in range(64):
            total[0] = total[0] + T.exp(x[i, j])
            y[i, j] = x[i, j] / total[0]


@T.prim_func(s_tir=True)
def quantized(given: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (4, 64), "float32")
    y = T.match_buffer(made, (4, 64), "float32")
    for i in range(4):
        for j in range(64):
            y[i, j] = T.nearbyint(T.exp(x[i, j]) / x[i, 0])


@T.prim_func(s_tir=True)
def by_a_number(given: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (4, 64), "float32")
    y = T.match_buffer(made, (4, 64), "float32")
    for i in range(4):
        for j in range(64):
            y[i, j] = T.exp(x[i, j]) / T.float32(3)


@T.prim_func(s_tir=True)
def by_a_tiny_number(given: T.handle, made: T.handle) -> None:
    x = T.match_buffer(given, (4, 64), "float32")
    y = T.match_buffer(made, (4, 64), "float32")
    for i in range(4):
        for j in range(64):
            y[i, j] = T.exp(x[i, j]) / T.float32(1e-39)


def changed(function, *, fast=True):
    module = tvm.IRModule({"main": function})
    main = (elementary.mark_inexact(module) if fast else module)["main"]
    return not tvm_ffi.structural_equal(multiply_by_reciprocals(main), main)


def test_a_divisor_that_stays_is_divided_by_once():
    assert changed(shares)
    assert not changed(shares, fast=False)


@each_row("function", [changing, quantized, by_a_tiny_number])
def test_other_divisions_stay(function):
    assert not changed(function)


def test_a_number_is_not_divided_by():
    assert changed(by_a_number)
    assert not changed(by_a_number, fast=False)
    marked = elementary.mark_inexact(tvm.IRModule({"main": by_a_number}))["main"]
    assert " / " not in str(multiply_by_reciprocals(marked))


def test_the_kernel_is_right_to_two_roundings():
    module = elementary.expand_functions(elementary.mark_inexact(tvm.IRModule({"main": shares})))
    x = np.random.default_rng(0).standard_normal((4, 64), dtype="float32")
    y = tvm.runtime.tensor(np.zeros_like(x))
    compile_kernel(module, make_host_target(1))["main"](tvm.runtime.tensor(x), y)
    wide = x.astype("float64")
    np.testing.assert_allclose(y.numpy(), np.exp(wide) / (wide[:, :1] + wide[:, -1:]), 4e-7)
