"""The GPU and the CUDA compiler of this machine.

The driver is queried in a child process that runs this file: a process that has used CUDA cannot
fork.
"""

import ctypes
import json
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

_MAJOR, _MINOR = 75, 76
"""The driver's numbers of the attributes with the compute capability."""

_PATIENCE: Final = 60.0
"""Seconds after which a driver that has not answered counts as broken."""


class Gpu(NamedTuple):
    """The first GPU that the driver shows to this process."""

    gpu: str
    """Its name."""
    arch: str
    """Its architecture, such as `sm_90`."""
    driver: str
    """The CUDA version of the driver."""


@cache
def look() -> Gpu | str:
    """Return the GPU, or why there is none."""
    command = [sys.executable, "-I", __file__]
    try:
        completed = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        return f"the NVIDIA driver gave no answer within {_PATIENCE:g} s"
    if completed.returncode != 0:
        return "the NVIDIA driver crashed when it was asked"
    answer = json.loads(completed.stdout)
    return answer if isinstance(answer, str) else Gpu(**answer)


def describe_gpu() -> dict[str, object]:
    """Return the facts of the GPU; null values without one."""
    gpu = look()
    return gpu._asdict() if isinstance(gpu, Gpu) else {"gpu": None, "driver": None}


def find_native_arch() -> str:
    """Return the architecture of the GPU. Raises TargetError where there is none."""
    from autopipe.errors import TargetError  # late: this file is also run alone

    gpu = look()
    if isinstance(gpu, str):
        raise TargetError(f"target.arch: {gpu}; name what to compile for, such as sm_90")
    return gpu.arch


@cache
def nvcc() -> str | None:
    """Return the path of the CUDA compiler: the one from pip, else that on the PATH."""
    wheel = next((found for found in _list_wheel_paths("bin/nvcc") if found.is_file()), None)
    return str(wheel) if wheel else shutil.which("nvcc")


@cache
def toolchain() -> dict[str, object]:
    """Name the CUDA compiler by its build."""
    path = nvcc()
    if path is None:
        return {"nvcc": None}
    completed = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    return {"nvcc": completed.stdout.strip().rsplit("\n", 1)[-1]}


def runtime_library() -> str:
    """Return libcudart as a name for the dynamic linker, or its path in NVIDIA's wheels."""
    name = "libcudart.so.13"  # what the CUDA runtime of TVM's wheel is linked with
    return next((str(found) for found in _list_wheel_paths(f"lib/{name}") if found.is_file()), name)


def _list_wheel_paths(file: str) -> list[Path]:
    """Return possible paths of a file of NVIDIA's wheels for CUDA 13."""
    spec = find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else None
    return [Path(folder, "cu13", file) for folder in folders or ()]


def _ask_driver() -> dict[str, str] | str:
    """Query the driver for its first device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1) here"
    error = driver.cuInit(0)
    if error:
        return f"the NVIDIA driver shows no GPU (cuInit gives {error})"
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), 0)
    number = ctypes.c_int()

    def query(function: str, *arguments: int) -> int:
        getattr(driver, function)(ctypes.byref(number), *arguments)
        return number.value

    version = query("cuDriverGetVersion")
    capability = [query("cuDeviceGetAttribute", which, 0) for which in (_MAJOR, _MINOR)]
    return {
        "gpu": name.value.decode(errors="replace"),
        "arch": f"sm_{capability[0]}{capability[1]}",
        "driver": f"{version // 1000}.{version % 1000 // 10}",
    }


if __name__ == "__main__":
    print(json.dumps(_ask_driver()))  # noqa: T201
