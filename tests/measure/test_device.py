import math
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from tvm import te

from autopipe.compiler import cuda_runtime
from autopipe.config.tuning import Measure
from autopipe.errors import SetupError
from autopipe.measure import device, timing
from autopipe.measure.build import Kernel, build
from tests.compiler.cuda_graphs import TARGET
from tests.schedules.tasks import TARGET as PROCESSOR


@pytest.fixture(scope="module")
def kernel():
    x = te.placeholder((64,), "float32")
    function = te.create_prim_func([x, te.compute((64,), lambda i: x[i] + 1)])
    return build(tvm.IRModule({"main": function}), PROCESSOR)


def test_what_is_compiled_for_the_processor_runs_on_it(kernel):
    place = device.prepare(PROCESSOR)
    assert not device.on_gpu(place)
    tensors = timing.arguments(kernel.module)
    assert all(a is b for a, b in zip(device.put(tensors, place), tensors, strict=True))
    assert device.on_gpu(tvm.cuda())


def test_a_gpu_that_can_not_be_used_is_said(monkeypatch):
    monkeypatch.setattr(cuda_runtime, "runtime_library", lambda: "libcudart.so.none")
    cuda_runtime.load.cache_clear()
    with pytest.raises(SetupError, match="CUDA can not be loaded: libcudart"):
        device.prepare(TARGET)


def test_the_clock_of_a_device_tells_the_same_as_ours(kernel):
    tensors = timing.arguments(kernel.module)
    assert 0 < timing._gpu_clock(kernel.library, tensors) < 1e-2
    np.testing.assert_array_equal(tensors[1].numpy(), tensors[0].numpy() + 1)


@pytest.mark.parametrize(("on_gpu", "cut"), [(True, False), (False, True)])
def test_the_first_call_on_a_gpu_says_nothing(monkeypatch, kernel, on_gpu, cut):
    """It takes the code in, which may take longer than all that follows."""
    times = iter([1.0, 2e-3])
    monkeypatch.setattr(timing, "on_gpu", lambda _: on_gpu)
    for name in ("_clock", "_gpu_clock"):
        monkeypatch.setattr(timing, name, lambda library, tensors: next(times))
    library = SimpleNamespace(
        time_evaluator=lambda *_, **__: lambda *_: SimpleNamespace(results=[2e-3, 2e-3])
    )
    found = timing.time_kernel(Kernel(library, kernel.module), tvm.cpu(), Measure(), 1e-2)
    assert found.cut is cut
    assert math.isclose(found.median, 1.0 if cut else 2e-3)
