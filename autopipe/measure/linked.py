"""Link a candidate as a shared library, which another machine can load."""

from pathlib import Path

import tvm

from autopipe.compiler.codegen.compile_kernels import export_library
from autopipe.environment.toolchain import Linker
from autopipe.measure.build import compile_module, without_weights
from autopipe.measure.device_session import LinkedKernel
from autopipe.measure.measurement import Candidate
from autopipe.measure.tensors import list_ports


def link_candidate(
    candidate: Candidate, target: tvm.target.Target, path: Path, linker: Linker | None
) -> LinkedKernel:
    """Compile a candidate for a target and write its library. Raises errors of TVM and linkers."""
    module = without_weights(candidate())
    write_library(compile_module(module, target), path, linker)
    return LinkedKernel(str(path), tuple(list_ports(module["main"])))


def write_library(library: tvm.runtime.Module, path: Path, linker: Linker | None) -> None:
    """Write a compiled module as a shared library."""
    options = linker.options if linker is not None else []
    export_library(library, path, options, linker.path if linker is not None else None)
