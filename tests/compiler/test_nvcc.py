import os

import pytest
import tvm
from tvm import te, topi

from autopipe.compiler import nvcc
from autopipe.errors import SetupError, StageError
from autopipe.schedules import dlight
from tests.compiler.cuda_graphs import CONDITIONS, TARGET, needs_nvcc

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
    assert str(caught.value) == 'nvcc can not compile the kernels: identifier "one" is undefined'


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
    code = nvcc._unpacked(device.inspect_source())
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
