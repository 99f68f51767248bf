"""The only calls of TVM's code generation: all code that is compiled here was inspected.

No other file of autopipe calls it. TVM calls it itself to fold constants, as `tirx.build`.
Importing this module puts `compile_kernel` in the place of `tirx.build`, and registers the pass
lists of kernels with TVM, which takes them by name.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax
from tvm.s_tir.pipeline import default_s_tir_pipeline
from tvm.support import cc
from tvm.tirx.compilation_pipeline import register_tir_pipeline

from autopipe.compiler.dynamic_sizes.kernel_sizes import is_dynamic, open_variables
from autopipe.compiler.named_pass import KernelPass, run_passes
from autopipe.compiler.pass_lists import (
    HOST_KERNELS,
    HOST_KERNELS_DYNAMIC,
    KERNELS,
    KERNELS_DYNAMIC,
    MACHINE_DYNAMIC,
)
from autopipe.compiler.patches import replace_build
from autopipe.compiler.walls import check_objects, module, text
from autopipe.compiler.walls.foreign_code import ForeignCode

_LOG: Final = logging.getLogger(__name__)

STATIC: Final = "autopipe.static"
DYNAMIC: Final = "autopipe.dynamic"
"""Names of the pass lists of kernels, as `tvm.tirx.build` takes them."""

APART: Final = "autopipe.apart"
"""The pass list of an executable whose kernels are compiled apart: it has none of them."""

SKIPPED: Final = ("tirx.RemoveNoOp",)
"""TVM's passes that do not run, since LLVM does their work: it makes the same code in less time."""

SKIPPED_DYNAMIC: Final = (*SKIPPED, "tirx.CommonSubexprElim", "tirx.StmtSimplify")
"""TVM's passes that do not run on kernels of dynamic shapes.

These compare each index, of which dynamic sizes make long expressions. TVM knows no bound of a
common subexpression that it has named, so that it divides it for all combinations of signs: without
names such kernels are smaller. `tirx.StmtSimplify` simplifies the copies of unrolled loops one by
one, which LLVM does in less time. Without `s_tir.StmtSimplify`, before, some kernels run slower.
"""


_CALLS_KEPT: Final = ("-inline-instr-cost:int=60",)
"""Options of LLVM for kernels of dynamic shapes, which keep the calls of shared bodies of loops.

A body that is copied into both of its loops is compiled twice, and LLVM moves more of its index
arithmetic out of the loop than fits in registers, so that most packages are slower.
"""


def compile_kernel(
    kernels: tvm.IRModule | tvm.tirx.PrimFunc, target: tvm.target.Target
) -> tvm.runtime.Module:
    """Compile the PrimFuncs of a module to a TVM runtime module. Raises ForeignCode."""
    module.look_through(kernels)
    return _compile_inspected(kernels, target, _choose_pipeline(kernels))


def _compile_inspected(
    kernels: tvm.IRModule | tvm.tirx.PrimFunc, target: tvm.target.Target, pipeline: str
) -> tvm.runtime.Module:
    code_target = _keep_calls(target) if pipeline == DYNAMIC else target
    library: tvm.runtime.Module = tvm.tirx.build(kernels, code_target, pipeline=pipeline)
    text.look_through(library)
    return library


def _keep_calls(target: tvm.target.Target) -> tvm.target.Target:
    """Return a processor's target with options of LLVM that keep calls of shared bodies."""
    if target.kind.name != "llvm":
        return target
    attributes = dict(target.export())
    attributes["cl-opt"] = [*attributes.get("cl-opt", ()), *_CALLS_KEPT]
    return tvm.target.Target(attributes)


def compile_model(model: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Executable:
    """Compile a model to an executable that is safe to run. Raises ForeignCode."""
    return lower_model(model, target).compile_executable()


@dataclass(frozen=True, slots=True)
class LoweredModel:
    """A model that was inspected, as calls of its kernels. Only `lower_model` makes one."""

    module: tvm.IRModule
    """The calls, and the kernels."""
    target: tvm.target.Target
    pipeline: str
    """The name of the pass list of the kernels."""

    def compile_executable(self, *, has_kernels: bool = True) -> tvm.runtime.Executable:
        """Compile the calls, with the kernels or without them. Raises ForeignCode."""
        pipeline = self.pipeline if has_kernels else APART
        executable = tvm.compile(
            self.module, target=self.target, relax_pipeline=None, tir_pipeline=pipeline
        )
        text.look_through(executable.mod)
        return executable

    def compile_kernels(self, names: Iterable[str]) -> tvm.runtime.Module:
        """Compile some of the kernels. Raises ForeignCode."""
        functions = {self.module.get_global_var(name): self.module[name] for name in names}
        kernels = tvm.IRModule(functions, attrs=self.module.attrs)
        return _compile_inspected(kernels, self.target, self.pipeline)


def lower_model(model: tvm.IRModule, target: tvm.target.Target) -> LoweredModel:
    """Lower the graph of a model to calls of its kernels. Raises ForeignCode."""
    module.look_through(model)
    with target:
        if is_dynamic(model):
            calls = run_passes(model, MACHINE_DYNAMIC, None)
            return LoweredModel(calls, target, DYNAMIC)
        has_gpu = "gpu" in target.keys
        passes = relax.get_default_pipeline(target) if has_gpu else relax.get_pipeline("default")
        return LoweredModel(passes(model), target, STATIC)


def _choose_pipeline(kernels: tvm.IRModule | tvm.tirx.PrimFunc) -> str:
    """Return the pass list for kernels: the dynamic one if a size is dynamic."""
    is_function = isinstance(kernels, tvm.tirx.PrimFunc)
    functions = [kernels] if is_function else kernels.functions.values()
    return DYNAMIC if any(map(open_variables, functions)) else STATIC


def make_kernel_pipeline(
    kernel_passes: Sequence[KernelPass],
    host_passes: Sequence[KernelPass],
    skipped_passes: Collection[str] = SKIPPED,
) -> tuple[object, Callable[[], object], object]:
    """Return TVM's passes for kernels, host code and device code, with ours before them.

    `skipped_passes` are names of TVM's passes for kernels that do not run.
    """
    kernels, host, device = default_s_tir_pipeline()
    ours = [kernel_pass.to_tvm() for kernel_pass in kernel_passes]
    last = [host_pass.to_tvm() for host_pass in host_passes]
    sequence = tvm.transform.Sequential
    kernels = _skip_passes(kernels, skipped_passes)
    return sequence([*ours, kernels]), lambda: sequence([*last, host()]), device


def _skip_passes(passes: tvm.transform.Pass, names: Collection[str]) -> tvm.transform.Pass:
    """Wrap a list of passes so that those of some names do not run."""

    def run(module: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        with tvm.transform.PassContext(
            opt_level=context.opt_level,
            disabled_pass=[*names],
            config=context.config,
            instruments=context.instruments,
        ):
            return passes(module)

    return tvm.transform.module_pass(run, opt_level=0, name=passes.info.name)


def export_library(
    executable: "tvm.runtime.Executable | tvm.runtime.Module",
    path: Path,
    options: Sequence[str] = (),
    linker: str | None = None,
    objects: Sequence[Path] = (),
) -> None:
    """Write a library, linked by the compiler at a path, or by the one that TVM finds.

    `objects` are object files that come before those of the executable. Raises ForeignCode, and
    RuntimeError if it cannot be linked.
    """
    link_options: dict[str, Any] = {"options": list(options)} if options else {}
    if linker is not None:
        link_options["cc"] = linker
    executable.export_library(
        str(path), fcompile=_link_checked, addons=list(map(str, objects)), **link_options
    )


@wraps(cc.create_shared)  # TVM reads attributes of it
def _link_checked(output: str, objects: Sequence[str], **options: object) -> None:
    for file in objects:
        check_objects.look_at_object(Path(file).read_bytes(), Path(file).name)
    sizes = ", ".join(f"{Path(file).name} {Path(file).stat().st_size} bytes" for file in objects)
    _LOG.debug("linking %s", sizes)
    cc.create_shared(output, objects, **options)
    try:
        check_objects.look_at_library(Path(output).read_bytes(), Path(output).name)
    except ForeignCode:
        Path(output).unlink()
        raise


def _compile_folded(
    function: tvm.tirx.PrimFunc, target: tvm.target.Target, *_: object
) -> tvm.runtime.Module:
    return compile_kernel(function, target)


def _make_empty_pipeline() -> tuple[object, Callable[[], object], object]:
    """Return the passes of an executable without kernels."""
    _, host, device = make_kernel_pipeline((), ())
    drop_kernels = tvm.transform.module_pass(
        lambda kernels, _: tvm.IRModule({}, attrs=kernels.attrs), opt_level=0, name="drop_kernels"
    )
    return drop_kernels, host, device


register_tir_pipeline(APART, _make_empty_pipeline)
register_tir_pipeline(STATIC, partial(make_kernel_pipeline, KERNELS, HOST_KERNELS))
register_tir_pipeline(
    DYNAMIC,
    partial(
        make_kernel_pipeline,
        (*KERNELS_DYNAMIC, *KERNELS),
        (*HOST_KERNELS_DYNAMIC, *HOST_KERNELS),
        SKIPPED_DYNAMIC,
    ),
)
replace_build(_compile_folded)
