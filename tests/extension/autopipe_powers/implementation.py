"""Implementation `products`: x to the power of 3 is x * x * x, where TVM calls libm for each."""

import math

import tvm
from tvm import te
from tvm.s_tir import Schedule

NAME = "products"
FAST = True  # it rounds after every product
LARGEST = 8


def rewrite(workload):
    """Return the function with products in place of the power, or None if it is no power."""
    exponent = _exponent(Schedule(workload))
    if exponent is None:
        return None
    function = workload["main"]
    data, _ = function.params
    x = te.placeholder(data.shape, data.dtype, name="x")

    def power(*index):
        return math.prod([x[index]] * exponent)

    product = te.create_prim_func([x, te.compute(data.shape, power, name="product")])
    return tvm.IRModule({"main": product.with_attrs(dict(function.attrs))})


def gain(workload, hardware):
    """A vector of products takes less time than a single call."""
    del workload
    return 4.0 * hardware.lanes(32)


def _exponent(sch):
    """Return n if the function computes x ** n, element by element, and nothing else."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    function = sch.mod["main"]
    if len(blocks) != 1 or len(function.params) != 2:
        return None
    call = getattr(sch.get(blocks[0]).body, "value", None)
    if not isinstance(call, tvm.ir.Call) or getattr(call.op, "name", "") != "tirx.pow":
        return None
    base, exponent = call.args
    if not isinstance(base, tvm.ir.TensorLoad) or not isinstance(exponent, tvm.tirx.FloatImm):
        return None
    whole = exponent.value == int(exponent.value) and 2 <= exponent.value <= LARGEST
    return int(exponent.value) if whole else None
