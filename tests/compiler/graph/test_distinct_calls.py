"""Of equal calls one is left, and what TVM cannot compute is still found."""

import pytest

tvm = pytest.importorskip("tvm")
from tvm import relax  # noqa: E402

from autopipe.compiler.graph.calls import list_bindings  # noqa: E402
from autopipe.compiler.graph.contents import CONSTANT, list_contents  # noqa: E402
from autopipe.compiler.graph.distinct_calls import collect_distinct_calls  # noqa: E402
from autopipe.compiler.passes.legalize import legalize_ops  # noqa: E402

CPU = tvm.target.Target({"kind": "llvm", "num-cores": 1})


def parse(shape: str, body: str):
    return tvm.script.from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor({shape}, "float32")):{body}
""")


BODY = """
        with R.dataflow():
            a = R.tanh(x)
            b = R.nn.relu(a)
            c = R.nn.relu(b)
            d = R.add(c, c)
            e = R.add(d, c)
            f = R.split(e, 2, axis=1)
            g = R.concat(f, axis=0)
            h = R.concat(f, axis=0)
            i = R.add(g, h)
            R.output(i)
        return i
"""


def test_one_of_all_equal_calls_is_kept():
    kept = collect_distinct_calls(parse("(2, 4)", BODY))
    names = [one.value.op.name.removeprefix("relax.") for one in list_bindings(kept["main"])]
    assert names == ["tanh", "nn.relu", "add", "add", "split", "concat", "add"]
    relax.analysis.well_formed(kept)  # raises where it is not
    with CPU:
        assert list_contents(legalize_ops(kept)) == {"relax.call_tir"}


def test_dynamic_shapes_are_left_alone():
    module = parse('("n", 4)', BODY)
    assert collect_distinct_calls(module)["main"].same_as(module["main"])


def test_contents_are_operators_and_constants():
    assert list_contents(parse("(2, 4)", BODY)) == {
        "relax.tanh", "relax.nn.relu", "relax.add", "relax.split", "relax.concat",
    }  # fmt: skip
    scaled = parse("(2, 4)", "\n        return R.multiply(x, R.const(2.0))\n")
    assert list_contents(scaled) == {"relax.multiply", CONSTANT}


def test_contents_of_branches_count():
    module = tvm.script.from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
        if c:
            y = R.exp(x)
        else:
            y = R.tanh(x)
        return y
""")
    assert list_contents(module) == {"relax.exp", "relax.tanh"}
