"""Builds a shared library from a lowered module and a schedule for each workload."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import relax, tirx
from tvm.relax import transform
from tvm.s_tir import Schedule

from autopipe.artifacts.model_nodes import KernelFunction
from autopipe.compiler.graph import elementary, weights
from autopipe.compiler.graph.inline import inline
from autopipe.compiler.graph.views import views
from autopipe.compiler.kernel_nodes import kernel_functions, relabel_packed
from autopipe.compiler.library import kernels, linking
from autopipe.compiler.library.kernel_compiler import compiling
from autopipe.compiler.library.taken import with_check
from autopipe.compiler.module_io import prim_funcs
from autopipe.compiler.open_order import given_sizes, is_open
from autopipe.compiler.target.target import backend_of
from autopipe.compiler.walls import gate
from autopipe.environment.toolchain import Linker
from autopipe.errors import StageError, StoreError
from autopipe.host import refusal
from autopipe.libraries.library import Library


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled model, not yet on disk."""

    executable: tvm.runtime.Executable
    """Its `main` takes the inputs, then the packed weights."""
    packing: tvm.IRModule
    """What is left to do on the weights: layouts that schedules asked for."""
    libraries: tuple[Library, ...] = ()
    """What the code calls besides TVM's runtime."""
    parameters: tuple[tuple[tuple[int, ...], str], ...] = ()
    """Shape and dtype of each tensor that `main` takes; empty where one has no known size."""
    steps: tuple[int, ...] = ()
    """Multiples of each size, which `main` takes behind the inputs where it is for one size of a
    model with open ones."""
    functions: tuple[KernelFunction, ...] = ()
    """The kernel calls of the graph, and the nodes of the model that they are made of."""
    stripped: bool = False
    """Whether it is linked without debug information: TVM describes the variables of kernels for
    debuggers, without a line of any source, which is half of a library for open sizes."""


def build(
    lowered: tvm.IRModule, scheduled: Mapping[str, tvm.IRModule], target: tvm.target.Target
) -> Built:
    """Compile the lowered module with the scheduled body of each PrimFunc.

    The keys of `scheduled` are names of PrimFuncs of `module`. Each value is a module whose `main`
    is the scheduled PrimFunc.
    Raises SetupError if the compiler for a GPU is missing, StageError if something can not be
    compiled, and ForeignCode (a StageError) if a schedule carries code.
    """
    module = tvm.IRModule(dict(lowered.functions_items()))
    taking_sizes = is_open(module)
    module = views(module)
    names = {name for name, _ in prim_funcs(module)}
    for name, body in scheduled.items():
        if name not in names:  # a copy that has become a view
            continue
        function = body["main"].without_attr("global_symbol").with_attr("tirx.is_scheduled", True)  # noqa: FBT003 - TVM's signature
        module.update_func(module.get_global_var(name), function)
    with target, tvm.transform.PassContext(opt_level=3):
        module = elementary.compilable(module, target)
        module, packing = weights.lift(relabel_packed(module, _split_packing(module)))
        libraries, parameters = linking.called(module), _parameters(module["main"])
        checks = not given_sizes(module)
        module = _with_kernel(inline(module) if checks else with_check(inline(module)))
        executable = _compiled(module, target, checks=checks)
        steps = _steps(module["main"])
        calls = kernel_functions(module)
        return Built(executable, packing, libraries, parameters, steps, calls, taking_sizes)


def _with_kernel(module: tvm.IRModule) -> tvm.IRModule:
    """Add a PrimFunc that does nothing to a module without any, as that of an identity is.

    TVM would give the linker a file of C in the place of an object file.
    """
    if any(prim_funcs(module)):
        return module
    added = tvm.IRModule(dict(module.functions_items()))
    added["nothing"] = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr(
        {"global_symbol": "nothing", "tirx.is_scheduled": True}
    )
    return added


def _parameters(main: relax.Function) -> tuple[tuple[tuple[int, ...], str], ...]:
    kinds = [one.ty for one in main.params if not isinstance(one.ty, relax.ShapeType)]
    if not all(isinstance(getattr(kind, "shape", None), relax.ShapeExpr) for kind in kinds):
        return ()
    if not all(isinstance(n, tvm.tirx.IntImm) for kind in kinds for n in kind.shape.values):
        return ()
    return tuple((tuple(map(int, kind.shape.values)), str(kind.dtype)) for kind in kinds)


def _steps(main: relax.Function) -> tuple[int, ...]:
    sizes = [one.ty.values for one in main.params if isinstance(one.ty, relax.ShapeType)]
    known = [n for values in sizes for n in values or ()]
    return tuple(int(n) for n in known if isinstance(n, tvm.tirx.IntImm))


def _compiled(
    module: tvm.IRModule, target: tvm.target.Target, *, checks: bool
) -> tvm.runtime.Executable:
    """Compile a model, with or without checks of their arguments in its kernels.

    They can go where every size follows from those of the inputs, which are checked before.
    """
    backend = backend_of(target)
    if backend.processor:
        config = {"tirx.disable_assert": not checks}
        with tvm.transform.PassContext(opt_level=3, config=config):
            return gate.model(module, target)
    for name, function in prim_funcs(module):
        alone = tvm.IRModule({name: function})
        if not kernels.threaded(alone, target):
            raise StageError(
                f"{name} has no schedule for {backend}, which can not run plain loops; "
                "schedules.fallback should name `default`"
            )
    with compiling(target):
        return gate.model(module, target)


def _split_packing(module: tvm.IRModule) -> tvm.IRModule:
    """Split PrimFuncs in two where a schedule packs weights: the packing, and the rest.

    TVM's pass for this fails on PrimFuncs without blocks, such as sort. So it is given only the
    PrimFuncs that pack weights.
    """
    functions = dict(module.functions_items())
    others = {
        var: function
        for var, function in functions.items()
        if isinstance(function, tvm.tirx.PrimFunc) and not _packs(function)
    }
    rest = {var: function for var, function in functions.items() if var not in others}
    split = transform.SplitLayoutRewritePreproc()(tvm.IRModule(rest))
    split.update(tvm.IRModule(others))
    return split


def _packs(function: tvm.tirx.PrimFunc) -> bool:
    sch = Schedule(function, debug_mask="none", error_render_level="none")
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except RuntimeError:  # no root: a loop nest, or a call of a library
        return False
    return any(weights.MARK in sch.get(block).annotations for block in blocks)


def export(built: Built, path: Path, linker: Linker | None = None) -> None:
    """Write the library, and beside it those that it calls. The same module gives the same bytes.

    Null is the linker that TVM finds, which links for this machine.

    Raises StageError if it can not be linked, as with a linker that does not know the target,
    ForeignCode (a StageError) if it does more than compute, and StoreError if the disk is full.
    """
    try:
        linked = linking.options(built.libraries)
        linked += [linking.STRIPPED] if built.stripped else []
        linked += linker.options if linker is not None else []
        gate.export(built.executable, path, linked, linker.path if linker is not None else None)
        linking.ship(built.libraries, path.parent)
    except RuntimeError as error:
        if words := refusal.said(str(error)):
            raise StoreError(f"{path}: {words}") from error
        if missing := refusal.hunger(str(error)):
            raise StageError(f"linking failed: {missing}") from error
        lines = [line for line in str(error).splitlines() if "error" in line.lower()]
        told = lines[1] if len(lines) > 1 else str(error).strip().splitlines()[-1]
        advice = "CXX may name another compiler, and `autopipe doctor` tries the one there is"
        if linker is not None:
            advice = f"target.linker is {linker.path}, and `autopipe doctor FILE` tries it"
        raise StageError(f"linking failed: {told.strip()}; {advice}") from error
