import os
import subprocess
import sys
from pathlib import Path

import pytest
import tvm
from tvm import te, topi

from autopipe.compiler.library import nvcc
from autopipe.errors import SetupError, StageError
from autopipe.schedules.engines import dlight
from tests.compiler.cuda_graphs import CONDITIONS, TARGET, needs_nvcc
from tests.support import fake_gpu

ROOT = Path(__file__).parents[3]
FATBIN = b"\x50\xed\x55\xba"
ADD = 'extern "C" __global__ void add(float* x) { x[threadIdx.x] += 1; }'


@needs_nvcc
def test_machine_code_is_made_without_a_gpu():
    code = nvcc.compile_cuda(ADD, "sm_90")
    assert code.startswith(FATBIN)
    assert code == nvcc.compile_cuda(ADD, "sm_90")
    assert code != nvcc.compile_cuda(ADD, "sm_80")


@needs_nvcc
def test_a_complaint_of_the_compiler_is_one_line():
    with pytest.raises(StageError) as caught:
        nvcc.compile_cuda(ADD.replace("+= 1", "+= one; two"), "sm_90")
    assert str(caught.value) == 'nvcc cannot compile the kernels: identifier "one" is undefined'


@needs_nvcc
def test_a_library_holds_the_machine_code_of_its_kernels():
    x = te.placeholder((4, 64), "float32")
    module = tvm.IRModule({"main": te.create_prim_func([x, topi.nn.softmax(x)])})
    nvcc.install()
    with nvcc.portable():
        planned = dlight.plan(module, CONDITIONS)
        assert planned is not None
        library = tvm.tirx.build(planned.module, TARGET)
    (device,) = library.imports
    code = nvcc._to_bytes(device.inspect_source())
    assert code.startswith(FATBIN)
    assert b"main_kernel" in code


def test_modules_are_portable_only_where_it_is_asked_for(monkeypatch):
    for before in (None, "0"):
        monkeypatch.delenv(nvcc._FALLBACK, raising=False)
        if before is not None:
            monkeypatch.setenv(nvcc._FALLBACK, before)
        with nvcc.portable():
            assert os.environ[nvcc._FALLBACK] == "1"
        assert os.environ.get(nvcc._FALLBACK) == before


def test_without_a_compiler_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(nvcc, "nvcc", lambda: None)
    with pytest.raises(SetupError, match=r"takes nvcc: pip install 'autopipe\[cuda\]'"):
        nvcc.install()


EXPORT = """
import sys
import tvm
from autopipe.compiler.library import cuda_runtime, nvcc
from autopipe.schedules.engines import dlight
from tests.compiler.cuda_graphs import CONDITIONS, TARGET
from tests.schedules.engines.test_dlight import softmax

beside = sys.argv[2] == "beside a GPU"
if beside:
    cuda_runtime.load()
nvcc.install()
planned = dlight.plan(softmax(), CONDITIONS)
with nvcc.portable():
    tvm.tirx.build(planned.module, TARGET).export_library(sys.argv[1])
assert tvm.cuda(0).exist or not beside
"""


@needs_nvcc
def test_a_library_is_the_same_whether_there_is_a_gpu_or_not(tmp_path):
    libraries = []
    fake = fake_gpu.make(tmp_path)
    for where in ("beside a GPU", "without one"):
        subprocess.run(
            [sys.executable, "-c", EXPORT, tmp_path / "lib.so", where], cwd=ROOT,
            env={**os.environ, **(fake if where == "beside a GPU" else {})},
            check=True,
        )  # fmt: skip
        libraries.append((tmp_path / "lib.so").read_bytes())
    assert libraries[0] == libraries[1]
