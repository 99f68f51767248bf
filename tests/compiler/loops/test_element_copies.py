"""Copies done by NumPy against the same function compiled."""

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T  # noqa: N812 - its name everywhere

from autopipe.compiler.loops.element_copies import ElementCopies


@T.prim_func(private=True, s_tir=True)
def read_by_columns(
    weights: T.Buffer((5, 20), "float32"),  # type: ignore[valid-type]
    bias: T.Buffer((20,), "float32"),  # type: ignore[valid-type]
    packed: T.Buffer((3, 5, 8), "float32"),  # type: ignore[valid-type]
    reversed_bias: T.Buffer((20,), "float32"),  # type: ignore[valid-type]
):
    for i, j, k in T.grid(3, 5, 8):
        with T.sblock("packed"):
            a, b, c = T.axis.remap("SSS", [i, j, k])
            packed[a, b, c] = weights[b, T.min(a * 8, 12) + c % 8]
    for i in range(20):
        with T.sblock("reversed"):
            a = T.axis.spatial(20, i)
            reversed_bias[a] = bias[19 - a]


@T.prim_func(private=True, s_tir=True)
def stored_by_columns(
    weights: T.Buffer((5, 24), "float32"),  # type: ignore[valid-type]
    packed: T.Buffer((3, 5, 8), "float32"),  # type: ignore[valid-type]
):
    for i, j in T.grid(5, 24):
        with T.sblock("packed"):
            a, b = T.axis.remap("SS", [i, j])
            packed[b // 8, a, b % 8] = weights[a, b]


@T.prim_func(private=True, s_tir=True)
def stored_in_turn(
    weights: T.Buffer((6, 8), "float32"),  # type: ignore[valid-type]
    packed: T.Buffer((13,), "float32"),  # type: ignore[valid-type]
):
    for i, j in T.grid(6, 8):
        with T.sblock("packed"):
            a, b = T.axis.remap("SS", [i, j])
            packed[a + b] = weights[a, b]


@T.prim_func(private=True, s_tir=True)
def read_outside(
    weights: T.Buffer((20,), "float32"),  # type: ignore[valid-type]
    packed: T.Buffer((20,), "float32"),  # type: ignore[valid-type]
):
    for i in range(20):
        with T.sblock("packed"):
            a = T.axis.spatial(20, i)
            packed[a] = weights[a + 1]


@T.prim_func(private=True, s_tir=True)
def stored_in_part(
    weights: T.Buffer((20,), "float32"),  # type: ignore[valid-type]
    packed: T.Buffer((20,), "float32"),  # type: ignore[valid-type]
):
    for i in range(20):
        with T.sblock("packed"):
            a = T.axis.spatial(20, i)
            packed[a // 2] = weights[a]


@T.prim_func(private=True, s_tir=True)
def computed(
    weights: T.Buffer((20,), "float32"),  # type: ignore[valid-type]
    packed: T.Buffer((20,), "float32"),  # type: ignore[valid-type]
):
    for i in range(20):
        with T.sblock("packed"):
            a = T.axis.spatial(20, i)
            packed[a] = weights[a] * T.float32(2)


def draw_sources(function, count):
    rng = np.random.default_rng(0)
    shapes = [list(map(int, one.ty.shape)) for one in function.params[:count]]
    return [rng.random(shape, np.float32) for shape in shapes]


@pytest.mark.parametrize("at_once", [16, 40, 1000])
@pytest.mark.parametrize(
    ("function", "count"), [(read_by_columns, 2), (stored_by_columns, 1), (stored_in_turn, 1)]
)
def test_copies_are_those_of_compiled_code(function, count, at_once, monkeypatch):
    monkeypatch.setattr("autopipe.compiler.loops.element_copies._AT_ONCE", at_once)
    sources = draw_sources(function, count)
    copies = ElementCopies.of(function)
    assert copies is not None
    copied = copies.apply(sources)
    tensors = [tvm.runtime.tensor(array) for array in (*sources, *map(np.zeros_like, copied))]
    tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))["main"](
        *tensors
    )
    for array, tensor in zip(copied, tensors[count:], strict=True):
        assert np.array_equal(array, tensor.numpy())
        assert array.any()


@pytest.mark.parametrize("function", [read_outside, stored_in_part])
def test_elements_outside_of_a_tensor_are_refused(function):
    copies = ElementCopies.of(function)
    assert copies is not None
    with pytest.raises(IndexError):
        copies.apply(draw_sources(function, 1))


def test_what_computes_is_no_copy():
    assert ElementCopies.of(computed) is None
