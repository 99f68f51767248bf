"""Rows of a tile: indices that are parts of one number become that number."""

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.codegen.join_row_indices import join_row_indices
from autopipe.compiler.target.target import make_host_target


@T.prim_func(s_tir=True)
def doubled(x: T.handle, y: T.handle) -> None:
    """Double each pixel, by the number of its position in a batch of images."""
    n, height, width = T.int64(), T.int64(), T.int64()
    given = T.match_buffer(x, (n, height, width, 8), "float32")
    made = T.match_buffer(y, (n, height, width, 8), "float32")
    for i in range(n * height * width):
        for k in range(8):
            with T.sblock("y"):
                row, c = T.axis.remap("SS", [i, k])
                made[row // (height * width), row // width % height, row % width, c] = (
                    given[row // (width * height), row // width % height, row % width, c] * 2
                )


def change_text(*changes):
    text = doubled.script()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return tvm.script.from_source(text)


def test_rows_of_arguments_are_indexed_by_their_number():
    text = join_row_indices(doubled).script().replace("T.int64(0)", "0")
    assert "made[0, 0, row, c] = given[0, 0, row, c]" in text


def test_joined_indices_read_and_write_the_same_places():
    shape = (2, 3, 8, 8)
    x = np.random.default_rng(0).random(shape, "float32")
    y = tvm.runtime.tensor(np.zeros(shape, "float32"))
    module = tvm.IRModule({"main": doubled.with_attr("global_symbol", "main")})
    library = compile_kernel(module, make_host_target(1))
    assert "div" not in library.inspect_source().partition("define internal")[2]
    library["main"](tvm.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), 2 * x)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("row % width", "(row + T.int64(1)) % width"),
        ("row % width", "row % height"),
        ("row // width % height", "row // height % height"),
        ("row // width % height", "row // width % (height + T.int64(1))"),
        ("row // width % height", "T.min(row, height - T.int64(1))"),
    ],
)
def test_indices_that_are_not_all_parts_of_one_number_stay(old, new):
    function = change_text((old, new))
    assert join_row_indices(function).same_as(function)


def test_an_axis_before_the_rows_keeps_its_index():
    names = ("row // (height * width)", "row // (width * height)")
    function = change_text(
        *((name, "n - T.int64(1)") for name in names),
        ("row // width % height", "row // width"),
    )
    text = join_row_indices(function).script().replace("T.int64(0)", "0")
    assert "made[n - T.int64(1), 0, row, c] = given[n - T.int64(1), 0, row, c]" in text


@pytest.mark.parametrize(
    "declaration",
    [
        '    given = T.sblock_alloc_buffer((n, height, width, 8), "float32")',
        '    given = T.match_buffer(x, (n, height, width, 8), "float32", strides=(n, n, 8, 1))',
    ],
)
def test_buffers_of_the_kernel_and_those_with_strides_keep_their_indices(declaration):
    head, body = doubled.script().split("):\n", 1)
    head = head.replace('given: T.Buffer((n, height, width, 8), "float32")', "x: T.handle")
    function = tvm.script.from_source(f"{head}):\n{declaration}\n{body}")
    text = join_row_indices(function).script().replace("T.int64(0)", "0")
    assert "made[0, 0, row, c] = given[row // (width * height), row // width % height" in text
