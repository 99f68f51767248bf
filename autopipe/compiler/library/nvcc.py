"""Compile GPU kernels with nvcc, without a GPU.

TVM calls `tvm_callback_cuda_postproc` with the CUDA C++ of a module, and then, only where a CUDA
runtime is present, `tvm_callback_cuda_compile` with the result. We compile in the first one. So a
library always holds machine code, built on a machine with or without a GPU, and no compiler is
needed to load it.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import tvm_ffi

from autopipe.environment.cuda import nvcc
from autopipe.errors import SetupError, StageError

FAILED: Final = "nvcc cannot compile the kernels: "
"""Prefix of its failures; TVM raises a RuntimeError for an error in a callback."""

_FALLBACK = "TVM_COMPILE_FORCE_FALLBACK"


def install() -> None:
    """Make TVM compile with nvcc from now on in this process. Raises SetupError without nvcc."""
    import tvm.support.nvcc  # noqa: F401 - registers its own first, which then are replaced

    if nvcc() is None:
        raise SetupError("compiling for CUDA takes nvcc: pip install 'autopipe[cuda]'")
    tvm_ffi.register_global_func("tvm_callback_cuda_postproc", _compile_to_text, override=True)
    install_loader()


def install_loader() -> None:
    """Make TVM load libraries that were compiled after `install`; that needs no compiler."""
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", _to_bytes, override=True)


@contextmanager
def portable() -> Iterator[None]:
    """Compile modules for files only: the same bytes on machines with and without a GPU."""
    before = os.environ.get(_FALLBACK)
    os.environ[_FALLBACK] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FALLBACK]
        else:
            os.environ[_FALLBACK] = before


def compile_cuda(source: str, arch: str) -> bytes:
    """Compile CUDA C++ to machine code for an architecture, and to PTX for later ones.

    Raises StageError with nvcc's first error.
    """
    number = arch.removeprefix("sm_")
    command = [
        str(nvcc()), "-x", "cu", "--fatbin", "-O3", "--disable-warnings",
        "-gencode", f"arch=compute_{number},code=[sm_{number},compute_{number}]",
        "-o", "/dev/stdout", "-",
    ]  # fmt: skip
    process = subprocess.run(command, input=source.encode(), capture_output=True, check=False)  # noqa: S603
    if process.returncode != 0:
        messages = process.stderr.decode(errors="replace").strip().splitlines() or [
            "no reason given"
        ]
        errors = [line.split("error: ", 1)[1] for line in messages if "error: " in line]
        raise StageError(f"{FAILED}{errors[0] if errors else messages[-1]}")
    return process.stdout


def _compile_to_text(source: str, target: object) -> str:
    """Compile CUDA C++ to machine code, as the text that TVM expects: a character per byte."""
    from autopipe.compiler.walls import text

    text.look_at_kernels(source)
    arch = target.attrs["arch"]  # type: ignore[attr-defined]
    return compile_cuda(source, str(arch)).decode("latin-1")


def _to_bytes(code: str) -> bytes:
    return code.encode("latin-1")
