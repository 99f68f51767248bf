"""Tries out what the TVM installation can do.

Each function runs in a child process, because TVM and tvm-ffi of unfitting releases crash.
"""

import platform
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autopipe.errors import SetupError, TargetError

if TYPE_CHECKING:
    from tvm import IRModule

Argument = Mapping[str, Any]
Emit = Callable[[Any], None]


def examine_tvm(_argument: Argument, _emit: Emit) -> dict[str, str]:
    """Run the calls in which unfitting releases of TVM and tvm-ffi crash; return LLVM's facts.

    The keys are `llvm` (the major version), `mcpu` and `mtriple` of this machine, and `lacks`: the
    features that `mcpu` should have and this machine has not, as can be on a virtual machine.
    """
    import tvm
    from tvm.target import codegen

    tvm.ir.save_json(_make_module())
    llvm = codegen.llvm_version_major(allow_none=True)
    if llvm is None:
        raise SetupError("this TVM was built without LLVM; install the apache-tvm wheel from PyPI")
    return {"llvm": str(llvm), **describe_machine()}


def _find_processor_name() -> str:
    """Return LLVM's name of this machine's processor."""
    from tvm.target import codegen

    from autopipe.compiler.target import cpu

    return cpu.find_llvm_name(str(codegen.llvm_get_system_cpu()))


def describe_machine() -> dict[str, str]:
    """Return what this machine is to LLVM: `mcpu`, `mtriple`, and the features it `lacks`."""
    from tvm.target import codegen

    from autopipe.compiler.target import cpu

    mcpu = _find_processor_name()
    needed = cpu.list_required_features({"kind": "llvm", "mcpu": mcpu, "num_cores": 1})
    return {
        "mcpu": mcpu,
        "lacks": " ".join(sorted(set(needed) - cpu.list_host_features())),
        "mtriple": str(codegen.llvm_get_system_triple()),
    }


def check_compatibility(_argument: Argument, _emit: Emit) -> str:
    """Make a database and a search in the same way as tuning does."""
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from autopipe.compiler.patches import load_cpu_intrinsics

    load_cpu_intrinsics(platform.machine())
    module = _make_module()
    tvm.ir.save_json(module)
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    with tempfile.TemporaryDirectory() as folder:
        database = ms.database.JSONDatabase(work_dir=folder)
        database.commit_workload(module)
    ms.TuneContext(
        mod=module, target=target, space_generator="post-order-apply",
        search_strategy="evolutionary", num_threads=1,
    )  # fmt: skip
    return "tvm and tvm-ffi fit each other"


def check_processor(_argument: Argument, _emit: Emit) -> str:
    """Return LLVM's name of this processor, if it knows the processor."""
    from tvm.target import codegen

    name = _find_processor_name()
    if name == "generic" or not codegen.llvm_is_valid_cpu(name, codegen.llvm_get_system_triple()):
        raise TargetError(f"LLVM does not know this processor ({name})")
    return f"LLVM {codegen.llvm_version_major()} knows this processor as {name}"


def check_linking(argument: Argument, _emit: Emit) -> str:
    """Compile, link, load and run a small function for this processor."""
    import numpy as np
    import tvm

    from autopipe.compiler.codegen.compile_kernels import compile_model, export_library

    here = describe_machine()
    lacks = [f"-{feature}" for feature in here["lacks"].split()]
    target = tvm.target.Target({"kind": "llvm", "mcpu": here["mcpu"], "mattr": lacks})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "add_one.so")
        export_library(compile_model(_make_module(), target), path)
        data = tvm.runtime.tensor(np.zeros(16, "float32"))
        out = tvm.runtime.tensor(np.zeros(16, "float32"))
        tvm.runtime.load_module(str(path))["main"](data, out)
    if not (out.numpy() == 1).all():
        raise SetupError(f"a compiled function computed {out.numpy()[0]} instead of 1")
    return f"a function was compiled, linked with {argument['linker']}, and run"


def check_cross_linking(argument: Argument, _emit: Emit) -> str:
    """Compile a small function for another machine and link it, as a pipeline's target says."""
    from autopipe.compiler.codegen.compile_kernels import compile_model, export_library
    from autopipe.compiler.target.target import make_cpu_target
    from autopipe.environment.toolchain import Linker

    linker = Linker.of(argument["linker"], argument["sysroot"])
    assert linker is not None  # noqa: S101 - nobody asks without one
    here = describe_machine()
    mcpu = here["mcpu"] if argument["mcpu"] == "native" else argument["mcpu"]
    target = make_cpu_target({**argument, "mcpu": mcpu, "num_cores": 1})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "add_one.so")
        export_library(compile_model(_make_module(), target), path, linker.options, linker.path)
    triple = argument["mtriple"] or here["mtriple"]
    return f"a function was compiled for {mcpu} ({triple}), and linked with {linker.path}"


def import_modules(argument: Argument, _emit: Emit) -> str:
    """Import the modules named in `modules`."""
    return ", ".join(
        f"{name} {getattr(import_module(name), '__version__', '')}" for name in argument["modules"]
    )


def check_cuda(_argument: Argument, _emit: Emit) -> str:
    """Return the GPU and its compiler. Raise SetupError if only one of the two is there."""
    from autopipe.compiler.library import cuda_runtime
    from autopipe.environment.cuda import Gpu, look, nvcc, toolchain

    found = look()
    compiler = toolchain()["nvcc"]
    if not isinstance(found, Gpu):
        able = f"; nvcc compiles for others ({compiler})" if nvcc() else ", nor nvcc"
        return f"none needed: {found}{able}"
    gpu = f"{found.gpu} ({found.arch}), driver for CUDA {found.driver}"
    if nvcc() is None:
        raise SetupError(f"{gpu}, but no nvcc to compile for it")
    import tvm

    cuda_runtime.load()
    if not tvm.cuda(0).exist:
        raise SetupError(f"{gpu}, but TVM does not see it")
    return f"{gpu}; {compiler}"


def _make_module() -> "IRModule":
    """Return an IRModule whose `main` adds one to 16 numbers."""
    import tvm
    from tvm import te

    data = te.placeholder((16,), "float32", name="data")
    out = te.compute((16,), lambda i: data[i] + 1, name="out")
    return tvm.IRModule({"main": te.create_prim_func([data, out])})
