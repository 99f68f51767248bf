import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from tvm import te

from autopipe.compiler.library import cuda_runtime
from autopipe.config.tuning import Measure
from autopipe.errors import SetupError
from autopipe.measure import device, timing
from autopipe.measure.build import Kernel, build_kernel
from tests.compiler.cuda_graphs import TARGET, needs_nvcc
from tests.schedules.tasks import TARGET as PROCESSOR
from tests.support import fake_gpu

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kernel():
    x = te.placeholder((64,), "float32")
    function = te.create_prim_func([x, te.compute((64,), lambda i: x[i] + 1)])
    return build_kernel(tvm.IRModule({"main": function}), PROCESSOR)


def test_what_is_compiled_for_the_processor_runs_on_it(kernel):
    place = device.prepare_device(PROCESSOR)
    assert not device.is_off_host(place)
    tensors = timing.make_operands(kernel.module)
    assert all(a is b for a, b in zip(device.copy_to_device(tensors, place), tensors, strict=True))
    assert device.is_off_host(tvm.cuda())


def test_a_gpu_that_can_not_be_used_is_said(monkeypatch):
    monkeypatch.setattr(cuda_runtime, "runtime_library", lambda: "libcudart.so.none")
    cuda_runtime.load.cache_clear()
    with pytest.raises(SetupError, match="CUDA cannot be loaded: libcudart"):
        device.prepare_device(TARGET)


MEASURE = """
import os
from functools import partial
import autopipe.compiler.import_tvm
from autopipe.config.tuning import Measure
from autopipe.measure.check import checked
from autopipe.measure.local import Local
from autopipe.schedules.engines import default
from tests.compiler.cuda_graphs import CONDITIONS, TARGET
from tests.schedules.engines.test_dlight import conv, softmax

candidates = []
for workload in (conv(), softmax()):
    module = default.plan(workload, CONDITIONS).module
    candidates.append(partial(lambda module: module, module))
    candidates.append(partial(checked, workload, module, TARGET))
for measurement in Local(TARGET, 2, Measure()).measure(candidates, same_task=False):
    print(measurement.error or "measured")
print(os.getpid())
"""


@needs_nvcc
def test_only_children_touch_the_gpu(tmp_path):
    """Its kernels do nothing here, which is found out as well."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], cwd=ROOT, env={**os.environ, **fake_gpu.make(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    *said, parent = done.stdout.splitlines()
    assert [line.split(":")[0] for line in said] == ["measured", "WrongAnswer"] * 2, done.stderr
    log = fake_gpu.log(tmp_path)
    touching = {pid for pid, *_ in log}
    assert int(parent) not in touching
    assert len(touching) == 4
    assert {rest for _, what, rest in log if what == "load"} == {"machine code"}
    assert any(what == "launch" for _, what, _ in log)


USED = """
import ctypes, sys
import autopipe.compiler.import_tvm
from autopipe.config.tuning import Measure
from autopipe.errors import SetupError
from autopipe.measure.local import Local
from tests.compiler.cuda_graphs import TARGET

Local(TARGET, 1, Measure())
ctypes.CDLL("libcuda.so.1").cuInit(0)
try:
    Local(TARGET, 1, Measure())
except SetupError as error:
    print(error)
"""


@needs_nvcc
def test_a_process_that_has_used_the_gpu_is_refused_as_a_parent(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", USED], cwd=ROOT, env={**os.environ, **fake_gpu.make(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("this process has used CUDA, "), done.stderr


def test_the_clock_of_a_device_tells_the_same_as_ours(kernel):
    tensors = timing.make_operands(kernel.module)
    call = timing.TimedCall(kernel.library, tensors, tensors[0].device)
    assert 0 < call.time_repeats(1, 1)[0] < 1
    np.testing.assert_array_equal(tensors[1].numpy(), tensors[0].numpy() + 1)


@pytest.mark.parametrize(("elsewhere", "cut"), [(True, False), (False, True)])
def test_the_first_call_on_a_gpu_says_nothing(monkeypatch, kernel, elsewhere, cut):
    """It takes the code in, which may take longer than all that follows."""
    times = iter([1.0, 2e-3])
    monkeypatch.setattr(timing, "is_off_host", lambda _: elsewhere)
    monkeypatch.setattr(timing.TimedCall, "time_once", lambda _: next(times))
    library = SimpleNamespace(
        time_evaluator=lambda *_, **__: lambda *_: SimpleNamespace(results=[2e-3, 2e-3])
    )
    call = timing.TimedCall.of(Kernel(library, kernel.module), tvm.cpu())  # type: ignore[arg-type]
    found = timing.time_call(call, Measure(), 1e-2)
    assert found.cut is cut
    assert math.isclose(found.median, 1.0 if cut else 2e-3)
