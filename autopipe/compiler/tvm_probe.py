"""Probe the TVM installation.

Each function runs in a child process, because incompatible releases of TVM and tvm-ffi crash.
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
    """Run calls that crash with incompatible TVM and tvm-ffi; return LLVM's facts.

    The keys are `llvm` (the major version), `mcpu` and `mtriple` of the host, and `lacks`: the
    features of `mcpu` that the host does not have, as on some virtual machines.
    """
    import tvm
    from tvm.target import codegen

    tvm.ir.save_json(_make_module())
    llvm = codegen.llvm_version_major(allow_none=True)
    if llvm is None:
        raise SetupError("this TVM was built without LLVM; install the apache-tvm wheel from PyPI")
    return {"llvm": str(llvm), **describe_machine()}


def _find_processor_name() -> str:
    """Return LLVM's name of the host's processor."""
    from tvm.target import codegen

    from autopipe.compiler.target import cpu

    return cpu.find_llvm_name(str(codegen.llvm_get_system_cpu()))


def describe_machine() -> dict[str, str]:
    """Describe the host in LLVM's terms: `mcpu`, `mtriple`, and the features it `lacks`."""
    from tvm.target import codegen

    from autopipe.compiler.target import cpu

    mcpu = _find_processor_name()
    required_features = cpu.list_required_features({"kind": "llvm", "mcpu": mcpu, "num_cores": 1})
    return {
        "mcpu": mcpu,
        "lacks": " ".join(sorted(set(required_features) - cpu.list_host_features())),
        "mtriple": str(codegen.llvm_get_system_triple()),
    }


def check_compatibility(_argument: Argument, _emit: Emit) -> str:
    """Create a database and a search as tuning does."""
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
    """Return LLVM's name of this processor. Raise TargetError if LLVM does not know it."""
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

    host = describe_machine()
    lacks = [f"-{feature}" for feature in host["lacks"].split()]
    target = tvm.target.Target({"kind": "llvm", "mcpu": host["mcpu"], "mattr": lacks})
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
    """Compile a small function for a pipeline's target on another machine, and link it."""
    from autopipe.compiler.codegen.compile_kernels import compile_model, export_library
    from autopipe.compiler.target.target import make_cpu_target
    from autopipe.environment.toolchain import Linker

    linker = Linker.of(argument["linker"], argument["sysroot"])
    assert linker is not None  # noqa: S101 - callers pass one
    host = describe_machine()
    mcpu = host["mcpu"] if argument["mcpu"] == "native" else argument["mcpu"]
    target = make_cpu_target({**argument, "mcpu": mcpu, "num_cores": 1})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "add_one.so")
        export_library(compile_model(_make_module(), target), path, linker.options, linker.path)
    triple = argument["mtriple"] or host["mtriple"]
    return f"a function was compiled for {mcpu} ({triple}), and linked with {linker.path}"


def import_modules(argument: Argument, _emit: Emit) -> str:
    """Import the modules named in `modules`."""
    return ", ".join(
        f"{name} {getattr(import_module(name), '__version__', '')}" for name in argument["modules"]
    )


def check_cuda(_argument: Argument, _emit: Emit) -> str:
    """Describe the GPU and its compiler. Raise SetupError if only one of the two is present."""
    from autopipe.compiler.library import cuda_runtime
    from autopipe.environment.cuda import Gpu, look, nvcc, toolchain

    gpu_or_reason = look()
    compiler = toolchain()["nvcc"]
    if not isinstance(gpu_or_reason, Gpu):
        able = f"; nvcc compiles for others ({compiler})" if nvcc() else ", nor nvcc"
        return f"none needed: {gpu_or_reason}{able}"
    gpu = f"{gpu_or_reason.gpu} ({gpu_or_reason.arch}), driver for CUDA {gpu_or_reason.driver}"
    if nvcc() is None:
        raise SetupError(f"{gpu}, but no nvcc to compile for it")
    import tvm

    cuda_runtime.load()
    if not tvm.cuda(0).exist:
        raise SetupError(f"{gpu}, but TVM does not see it")
    return f"{gpu}; {compiler}"


def _make_module() -> "IRModule":
    """Build an IRModule with a `main` that adds one to 16 numbers."""
    import tvm
    from tvm import te

    data = te.placeholder((16,), "float32", name="data")
    out = te.compute((16,), lambda i: data[i] + 1, name="out")
    return tvm.IRModule({"main": te.create_prim_func([data, out])})
