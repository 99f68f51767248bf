"""Copies become views where they change nothing but the shape."""

import pytest
from tvm.script import from_source, ir, tirx
from tvm.script import relax as script

from autopipe.compiler.passes.replace_copies_by_views import RESHAPE, replace_copies_by_views

SCRIPT = {"I": ir, "R": script, "T": tirx}
COPY = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def copy(x: T.Buffer((4, 8), "float32"), y: T.Buffer(({rows}, 4, 2), "float32")):
        for i, j, k in T.grid({rows}, 4, 2):
            with T.sblock("copy"):
                a, b, c = T.axis.remap("SSS", [i, j, k])
                y[a, b, c] = x[a, b * 2 + c]

    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor(({rows}, 4, 2), "float32"):
        with R.dataflow():
            y = R.call_tir(Module.copy, (x,), out_ty=R.Tensor(({rows}, 4, 2), "float32"))
            z = R.abs(y)
            R.output(z)
        return z
"""


@pytest.mark.parametrize(("rows", "is_view"), [(4, True), (2, False)])
def test_a_copy_of_all_of_a_tensor_is_a_view_and_one_of_its_first_half_is_not(rows, is_view):
    changed = replace_copies_by_views(from_source(COPY.format(rows=rows), extra_vars=SCRIPT))
    assert ("R.reshape" in changed.script()) == is_view, RESHAPE
