"""TVMScript sources for the tests of the frontend."""

HEAD = """\
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

"""

DOUBLE = (
    HEAD
    + """
@T.prim_func(s_tir=True)
def double(x: T.Buffer((4, 3), "float32"), y: T.Buffer((4, 3), "float32")):
    for i, j in T.grid(4, 3):
        with T.sblock("double"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            y[v_i, v_j] = x[v_i, v_j] * T.float32(2)
"""
)
"""A PrimFunc that is the whole model."""

DENSE = (
    HEAD
    + """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True, private=True)
    def shift(a: T.Buffer((2, 4), "float32"), b: T.Buffer((4,), "float32"),
              c: T.Buffer((2, 4), "float32")):
        for i, j in T.grid(2, 4):
            with T.sblock("shift"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                c[v_i, v_j] = a[v_i, v_j] + b[v_j]

    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        weight: R.Tensor((3, 4), "float32"),
        bias: R.Tensor((4,), "float32"),
    ):
        R.func_attr({"num_input": 1})
        cls = Module
        product = R.matmul(x, weight)
        shifted = R.call_tir(cls.shift, (product, bias), out_ty=R.Tensor((2, 4), "float32"))
        y = R.nn.relu(shifted)
        return y
"""
)
"""Relax with operators and a PrimFunc, two weights, no dataflow block."""

EMBED = (
    HEAD
    + """
@I.ir_module
class Module:
    @R.function
    def main(ids: R.Tensor((5,), "int64"), table: R.Tensor((7, 3), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            same = R.reshape(ids, R.shape([5]))
            rows = R.take(table, same, axis=0)
            R.output(rows)
        return rows
"""
)
"""An input that selects rows of a weight."""


def main(body, returned="y", arguments='x: R.Tensor((2, 3), "float32")', attributes="{}"):
    """Return a source whose main has these statements."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"""{HEAD}
@I.ir_module
class Module:
    @R.function
    def main({arguments}):
        R.func_attr({attributes})
{lines}
        return {returned}
"""


def block(statement, head='x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")'):
    """Return a source whose one PrimFunc has a block with this statement."""
    return f"""{HEAD}
@T.prim_func(s_tir=True)
def one({head}):
    for i in T.grid(4):
        with T.sblock("one"):
            v = T.axis.spatial(4, i)
            {statement}
"""
