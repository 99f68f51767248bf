"""Layouts are propagated as TVM's own pass does it, to the same bytes."""

from typing import Any

import pytest

tvm = pytest.importorskip("tvm")
from tvm import relax  # noqa: E402

from autopipe.compiler.graph.shared_types import share_types  # noqa: E402
from autopipe.compiler.passes.propagate_layouts import propagate_layouts  # noqa: E402
from tests.compiler import graphs  # noqa: E402

WISHES = {"relax.nn.conv2d": ["NHWC", "HWIO"]}

TUPLES = """
        a = R.nn.conv2d(x, w, padding=1)
        b = R.split(a, 2, axis=1)
        c = b[0]
        d = b[1]
        e = R.concat((d, c, a), axis=1)
        pair = (a, e)
        f = pair[1]
        g = R.nn.relu(f)
        h = R.sum(g, axis=[2, 3])
        i = R.reshape(g, R.shape([2, 1024]))
        j = R.nn.max_pool2d(a, pool_size=[2, 2])
        k = R.add(a, R.const(2.0, "float32"))
        out = (h, i, j, k, b)
"""
CASTS = """
        a = R.nn.conv2d(x, w, padding=1)
        b = R.match_cast(a, R.Tensor((2, 8, 8, 8), "float32"))
        c = R.nn.relu(b)
        d = R.match_cast(x, R.Tensor((2, 8, 8, 8), "float32"))
        e = R.add(c, d)
        f = R.nonzero(e)
        out = (e, f)
"""
REPEATED = """
        a = R.nn.relu(x)
        b = R.nn.conv2d(a, w, padding=1)
        c = R.nn.relu(b)
        d = R.nn.conv2d(c, w, padding=1)
        e = R.nn.conv2d(x, w, padding=1)
        f = R.nn.relu(d)
        g = R.add(f, e)
        h = R.add(x, x)
        i = R.add(d, x)
        out = (g, h, i)
"""


def parse(body: str) -> Any:
    """Return a module with a dataflow block, whose result is `out`."""
    return tvm.script.from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 8, 8, 8), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")):
        with R.dataflow():{body.replace(chr(10), chr(10) + "    ")}
            R.output(out)
        return out
""")


@pytest.mark.parametrize(
    "module",
    [parse(TUPLES), parse(CASTS), graphs.convolution(stride=2)],
    ids=["tuples", "casts", "convolution"],
)
def test_a_module_is_what_tvm_makes_of_it(module: Any) -> None:
    expected = relax.transform.ConvertLayout(WISHES)(module)
    assert "permute_dims" in expected.script()
    converted = propagate_layouts(module, WISHES)
    assert converted.script() == expected.script()
    assert tvm.ir.save_json(converted) == tvm.ir.save_json(expected)


def test_equal_calls_of_operands_in_other_layouts_have_other_decisions() -> None:
    module = share_types(parse(REPEATED))
    expected = relax.transform.ConvertLayout(WISHES)(module)
    converted = propagate_layouts(module, WISHES)
    assert converted.script() == expected.script()
    assert tvm.ir.save_json(share_types(converted)) == tvm.ir.save_json(share_types(expected))
