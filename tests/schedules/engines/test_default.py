import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule, ScheduleError

from autopipe.schedules.engines import default
from autopipe.schedules.hardware import vector_bits
from tests.compiler.graphs import TARGET
from tests.schedules.computed import assert_same, called, compiled
from tests.schedules.tensors import module_of
from tests.support.table import each_row


def conv(channels, dtype="float32"):
    x = te.placeholder((1, 9, 9, 3), dtype)
    w = te.placeholder((3, 3, 3, channels), dtype)
    return [x, w, topi.nn.relu(topi.nn.conv2d_nhwc(x, w, 1, 1, 1))]


def dense():
    x, w = te.placeholder((5, 33), "float32"), te.placeholder((33, 34), "float32")
    return [x, w, topi.sqrt(topi.matmul(x, w))]


def softmax():
    x = te.placeholder((6, 37), "float32")
    return [x, topi.nn.softmax(x, axis=1)]


def pool():
    x = te.placeholder((1, 8, 8, 7), "float32")
    return [x, topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max", layout="NHWC")]


def transpose_and_concat():
    x, y = te.placeholder((4, 7, 5), "float32"), te.placeholder((5, 4, 3), "float32")
    return [x, y, topi.concatenate([topi.transpose(x, [2, 0, 1]), y], axis=2)]


def scalar_sum():
    x = te.placeholder((50,), "float32")
    return [x, topi.sum(x)]


def argmax():
    x = te.placeholder((6, 21), "float32")
    return [x, topi.argmax(x, axis=1)]


def integers():
    x, y = te.placeholder((3, 40), "int64"), te.placeholder((3, 40), "int64")
    return [x, y, topi.floor_divide(x, y)]


CASES = {
    "conv": lambda: conv(32),
    "odd_conv": lambda: conv(7),
    "half_conv": lambda: conv(16, "float64"),
    "dense": dense,
    "softmax": softmax,
    "pool": pool,
    "transpose_and_concat": transpose_and_concat,
    "scalar_sum": scalar_sum,
    "argmax": argmax,
    "integers": integers,
}


@each_row("name", CASES)
def test_a_scheduled_function_computes_the_same(name):
    module = module_of(CASES[name]())
    assert_same(module, default.schedule(module, TARGET))


@pytest.mark.parametrize("name", ["conv", "dense", "pool", "transpose_and_concat"])
def test_loops_are_parallel_and_vectorized(name, monkeypatch):
    monkeypatch.setattr(default, "ELEMENTS", 1)
    monkeypatch.setattr(default, "PRODUCTS", 1)
    script = default.schedule(module_of(CASES[name]()), TARGET).script()
    assert "T.parallel" in script
    assert "T.vectorized" in script


def test_a_loop_too_short_for_threads_stays_on_one():
    def sums(size):
        x, y = te.placeholder((size, 64), "float32"), te.placeholder((size, 64), "float32")
        return default.schedule(module_of([x, y, topi.add(x, y)]), TARGET).script()

    assert "T.parallel" not in sums(255)
    assert "T.parallel" in sums(256)


def test_a_convolution_sums_in_registers():
    script = default.schedule(module_of(conv(32)), TARGET).script()
    assert 'scope="local"' in script
    assert "T.unroll" in script


def test_a_block_that_refuses_stays_as_it_was(monkeypatch):
    module = module_of(dense())

    def refuse(*_):
        raise ScheduleError("no")

    monkeypatch.setattr(Schedule, "vectorize", refuse)
    assert_same(module, default.schedule(module, TARGET))


def test_tir_without_blocks_is_left_alone():
    module = tvm.IRModule({"main": tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(0))})
    assert default.schedule(module, TARGET).same_as(module)


def test_vector_width_follows_the_target_not_the_host():
    widths = [
        vector_bits(tvm.target.Target({"kind": "llvm", "mcpu": cpu}))
        for cpu in ("x86-64", "haswell", "skylake-avx512")
    ]
    assert widths == [128, 256, 512]


def test_a_number_of_rows_that_is_not_known_is_no_obstacle():
    x = te.placeholder((te.var("n"), 1225), "float32")
    w = te.placeholder((1225, 91), "float32")
    module = module_of([x, w, topi.matmul(x, w)])
    scheduled = default.schedule(module, TARGET)
    script = scheduled.script()
    assert "T.parallel" in script
    assert "T.vectorized" in script
    ((function,), rng) = compiled([scheduled]), np.random.default_rng(0)
    for rows in (1, 13):
        left, right = rng.random((rows, 1225), "f"), rng.random((1225, 91), "f")
        result = np.zeros((rows, 91), "f")
        found = called(function, list(map(tvm.runtime.tensor, (left, right, result))))
        np.testing.assert_allclose(found, left @ right, rtol=1e-4)


def test_a_vector_has_a_known_size():
    x = te.placeholder((64, te.var("n")), "float32")
    assert "T.vectorized(n)" not in default.schedule(module_of([x, topi.exp(x)]), TARGET).script()


@pytest.mark.parametrize("shapes", [((0, 16), (16, 8)), ((4, 0), (0, 8))])
def test_what_has_no_elements_is_left_alone(shapes):
    x, w = (te.placeholder(shape, "float32") for shape in shapes)
    module = module_of([x, w, topi.nn.matmul(x, w)])
    assert_same(module, default.schedule(module, TARGET))
