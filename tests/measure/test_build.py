import numpy as np
import tvm
from tvm import te

from autopipe.measure.build import build_kernels
from tests.measure.bad_candidates import TARGET, good


def dynamic():
    size = te.var("n", "int64")
    data = te.placeholder((size,), "float32", name="data")
    out = te.compute((size,), lambda i: data[i] * 3.0, name="out")
    return tvm.IRModule({"main": te.create_prim_func([data, out])})


def call(kernel, size):
    data = np.arange(size, dtype="float32")
    out = tvm.runtime.empty((size,), "float32")
    kernel.library[kernel.name](tvm.runtime.tensor(data), out)
    return data, out.numpy()


def test_kernels_that_are_built_together_compute_what_each_should():
    kernels = build_kernels([good(16), dynamic(), good(32), dynamic()], TARGET)
    for kernel, size, factor in zip(kernels, (16, 5, 32, 7), (2, 3, 2, 3), strict=True):
        data, out = call(kernel, size)
        assert (out == factor * data).all()
    assert kernels[0].library.same_as(kernels[2].library)
    assert not kernels[0].library.same_as(kernels[1].library)
