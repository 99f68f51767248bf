from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from autopipe.compiler.passes.rewrite_transposed_convolutions import rewrite_transposed_convolutions
from tests.compiler import graphs
from tests.support.table import each_row


def transposed(data, kernel, **attrs):
    x = relax.Var("x", relax.TensorType(data, "float32"))
    weight = relax.Var("w", relax.TensorType(kernel, "float32"))
    operation = getattr(relax.op.nn, f"conv{len(data) - 2}d_transpose")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, weight]):
        with builder.dataflow():
            out = builder.emit_output(operation(x, weight, **attrs))
        builder.emit_func_output(out)
    return builder.get()


def ops(module):
    values = [b.value for block in module["main"].body.blocks for b in block.bindings]
    return [v.op.name.removeprefix("relax.") for v in values if isinstance(v, relax.Call)]


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "as many taps as steps": ((2, 6, 5, 4), (6, 4, 2, 2), {"strides": 2}),
    "overlapping": ((2, 6, 5, 4), (6, 4, 4, 4), {"strides": 2, "padding": 1}),
    "a convolution for each phase": ((2, 6, 3, 4), (6, 16, 4, 4), {"strides": 2, "padding": 1}),
    "phases of other sides": (
        (1, 6, 4, 4), (6, 16, 5, 5),
        {"strides": (2, 3), "padding": (1, 2, 2, 0), "output_padding": (0, 0)},
    ),
    "one element": (
        (2, 6, 1, 3), (6, 4, 4, 4), {"padding": (0, 1), "strides": (1, 2), "output_padding": 0},
    ),
    "one element and more behind": (
        (1, 4, 1, 1), (4, 2, 3, 3), {"strides": 3, "padding": 1, "output_padding": 2},
    ),
    "taps that do not divide": (
        (2, 6, 5, 4), (6, 2, 3, 3),
        {"strides": 2, "padding": 1, "output_padding": 1, "groups": 2},
    ),
    "lopsided": (
        (1, 4, 5, 4), (4, 1, 5, 3),
        {"strides": (3, 1), "padding": (2, 0, 1, 2), "groups": 4},
    ),
    "fewer taps than steps": ((2, 4, 3, 3), (4, 2, 1, 1), {"strides": 2}),
    "no stride": ((2, 4, 5, 5), (4, 2, 3, 3), {"padding": 1}),
    "one axis": ((1, 4, 9), (4, 3, 5), {"strides": 2, "padding": (0, 3), "output_padding": 1}),
    "three axes": (
        (2, 2, 3, 4, 5), (2, 4, 3, 2, 3),
        {"strides": (2, 2, 1), "padding": (1, 0, 0, 1, 0, 2), "output_padding": (1, 0, 0)},
    ),
}  # fmt: skip


@each_row("case", CASES)
def test_the_plain_convolution_computes_the_same(case):
    data, kernel, attrs = CASES[case]
    module = transposed(data, kernel, **attrs)
    plain = rewrite_transposed_convolutions(module)
    assert not any("transpose" in op for op in ops(plain) if op.startswith("nn."))
    arrays = graphs.arguments(module)
    expected = graphs.expected(module, arrays)
    found = graphs.run(plain, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attrs", [{"dilation": 2}, {"strides": 2, "padding": 4, "output_padding": 1}]
)
def test_what_no_plain_convolution_computes_stays(attrs):
    module = transposed((1, 2, 8, 8), (2, 3, 3, 3), **attrs)
    assert ops(rewrite_transposed_convolutions(module)) == ["nn.conv2d_transpose"]


def same_at(opened, counts):
    """Compare the plain convolution with the transposed one, their open sizes bound."""
    plain = rewrite_transposed_convolutions(opened)
    assert not any("transpose" in op for op in ops(plain) if op.startswith("nn."))
    closed, right = (relax.transform.BindSymbolicVars(counts)(one) for one in (plain, opened))
    arrays = graphs.arguments(right)
    expected = graphs.expected(right, arrays)
    np.testing.assert_allclose(graphs.run(closed, arrays), expected, rtol=1e-4, atol=1e-5)


def test_a_batch_may_be_open():
    same_at(transposed((tirx.Var("n", "int64"), 2, 8, 8), (2, 3, 3, 3), strides=2), {"n": 2})
    for case in ("taps that do not divide", "lopsided"):  # what is cut off, too
        data, kernel, attrs = CASES[case]
        opened = transposed((tirx.Var("n", "int64"), *data[1:]), kernel, **attrs)
        for count in (1, 3):
            same_at(opened, {"n": count})


def test_axes_of_dynamic_sizes_are_computed_where_nothing_is_cut_off():
    data = (1, 6, *(tirx.Var(name, "int64") for name in ("height", "width")))
    opened = transposed(data, (6, 4, 3, 2), strides=(3, 2))
    same_at(opened, {"height": 2, "width": 5})
    overlapping = transposed(data, (6, 4, 4, 4), strides=2, padding=1)
    assert ops(rewrite_transposed_convolutions(overlapping)) == ["nn.conv2d_transpose"]


@pytest.mark.parametrize(
    ("case", "convolutions"),
    [
        ("a convolution for each phase", 4), ("phases of other sides", 6), ("overlapping", 1),
        ("no stride", 1),
    ],
)  # fmt: skip
def test_phases_are_apart_where_one_convolution_would_compute_much_that_is_dropped(
    case, convolutions
):
    data, kernel, attrs = CASES[case]
    found = ops(rewrite_transposed_convolutions(transposed(data, kernel, **attrs)))
    assert found.count("nn.conv2d") == convolutions
