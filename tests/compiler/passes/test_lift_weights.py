"""Work on weights is lifted as TVM's pass does it, to equal modules."""

from contextlib import nullcontext

import pytest

tvm = pytest.importorskip("tvm")
import tvm_ffi  # noqa: E402

from autopipe.compiler.graph.split_transform import NotSplitError, split_transform  # noqa: E402
from autopipe.compiler.passes import lift_weights as lifting  # noqa: E402
from tests.compiler import graphs  # noqa: E402

HEAD = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32"),
             v: R.Tensor((4, 4), "float32"), b: R.Tensor((4,), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
"""
ALL = "y = R.matmul(x, w)\nz = R.add(R.matmul(y, v), b)"
WORK = """
t = R.permute_dims(w)
y = R.matmul(x, t)
u = R.multiply(w, w)
k = R.add(u, b)
dead = R.exp(v)
e = R.exp(R.const([1.0, 2.0, 3.0, 4.0], "float32"))
z = R.add(R.add(R.add(R.matmul(y, k), u), b), e)
"""
PARTS = "p = R.split(w, 2, axis=0)\nq = p[1]\ny = R.add(R.concat((q, p[0])), x)\nz = R.matmul(q, y)"
RESULT = "y = R.matmul(x, w)\nz = R.permute_dims(w)"


@pytest.mark.parametrize(
    ("body", "is_split"), [(ALL, True), (WORK, True), (PARTS, True), (RESULT, False)]
)
def test_modules_equal_those_of_tvm(monkeypatch, body, is_split):
    lines = [*body.strip().splitlines(), "R.output(z)"]
    text = HEAD + "".join(f"            {line}\n" for line in lines) + "        return z\n"
    module = tvm.script.from_source(text, check_well_formed=False)
    module = tvm.relax.transform.CanonicalizeBindings()(module)
    with nullcontext() if is_split else pytest.raises(NotSplitError):
        split_transform(module["main"])
    made = lifting.lift_weights(module)
    monkeypatch.setattr(lifting, "graph_functions", lambda _: [])
    wanted = lifting.lift_weights(module)
    for one, other in zip(made, wanted, strict=True):
        assert tvm_ffi.structural_equal(one, other)
        assert one.script(show_meta=True) == other.script(show_meta=True)


def test_padded_model(monkeypatch):
    module = tvm.relax.transform.CanonicalizeBindings()(graphs.convolution())
    entry = module.get_global_var("main")
    module.update_func(entry, module[entry].with_attr("num_input", 1))
    made = lifting.lift_weights(module)
    monkeypatch.setattr(lifting, "graph_functions", lambda _: [])
    for one, other in zip(made, lifting.lift_weights(module), strict=True):
        assert tvm_ffi.structural_equal(one, other)
