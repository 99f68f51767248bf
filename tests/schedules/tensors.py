"""Functions of tensors as modules of one PrimFunc."""

import tvm
from tvm import te


def tensor(*shape, dtype="float32"):
    return te.placeholder(shape, dtype, name="x")


def module_of(tensors, weights=()):
    function = te.create_prim_func(tensors).with_attr("layout_free_buffers", list(weights))
    return tvm.IRModule({"main": function})


def matmul(size=48):
    left = te.placeholder((size, size), "float32", name="left")
    right = te.placeholder((size, size), "float32", name="right")
    k = te.reduce_axis((0, size), name="k")
    out = te.compute(
        (size, size), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="matmul"
    )
    return tvm.IRModule({"main": te.create_prim_func([left, right, out])})
