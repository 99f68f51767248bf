"""Builds a shared library from a lowered module and a schedule for each workload."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import relax

from autopipe.artifacts.model_nodes import KernelFunction
from autopipe.compiler.codegen.compile_kernels import compile_model, export_library
from autopipe.compiler.dynamic_sizes.kernel_sizes import has_computed_sizes, is_dynamic
from autopipe.compiler.labels.kernel_nodes import list_kernel_functions
from autopipe.compiler.library import kernels, linking
from autopipe.compiler.library.kernel_compiler import use_kernel_compiler
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.named_pass import run_passes
from autopipe.compiler.pass_lists import LINK
from autopipe.compiler.pass_observer import pass_context
from autopipe.compiler.pass_state import LinkState
from autopipe.compiler.target.target import backend_of
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
    """What is left to do on weights before they are stored: layouts that schedules asked for."""
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


@dataclass(frozen=True, slots=True)
class LinkedGraph:
    """A graph with its scheduled kernels, not yet compiled."""

    module: tvm.IRModule
    packing: tvm.IRModule
    """As in `Built`."""
    target: tvm.target.Target
    is_dynamic: bool
    """Whether the lowered module has a dynamic dimension."""


def build_library(
    lowered: tvm.IRModule,
    scheduled: Mapping[str, tvm.IRModule],
    target: tvm.target.Target,
    *,
    packs_at_load: bool = False,
) -> Built:
    """Compile the lowered module with the scheduled body of each PrimFunc.

    Takes what `link_graph` does, and raises what it and `compile_graph` do.
    """
    return compile_graph(link_graph(lowered, scheduled, target, packs_at_load=packs_at_load))


def link_graph(
    lowered: tvm.IRModule,
    scheduled: Mapping[str, tvm.IRModule],
    target: tvm.target.Target,
    *,
    packs_at_load: bool = False,
) -> LinkedGraph:
    """Put the scheduled body of each PrimFunc into the lowered module; take work on weights out.

    The keys of `scheduled` are names of PrimFuncs of `module`. Each value is a module whose `main`
    is the scheduled PrimFunc. With `packs_at_load` the library itself packs weights that grow much.
    """
    state = LinkState(target=target, scheduled=scheduled, packs_at_load=packs_at_load)
    with target, pass_context():
        module = run_passes(lowered, LINK, state)
    return LinkedGraph(module, state.packing, target, is_dynamic(lowered))


def compile_graph(graph: LinkedGraph) -> Built:
    """Compile a linked graph.

    Raises SetupError if the compiler for a GPU is missing, StageError if something can not be
    compiled, and ForeignCode (a StageError) if a schedule carries code.
    """
    module = graph.module
    with graph.target, pass_context():
        executable = _compile_executable(module, graph.target)
    return Built(
        executable=executable,
        packing=graph.packing,
        libraries=linking.find_libraries(module),
        parameters=_read_parameters(module["main"]),
        steps=_read_size_steps(module["main"]),
        functions=list_kernel_functions(_replace_reshapes(module)),
        stripped=graph.is_dynamic,
    )


def _replace_reshapes(module: tvm.IRModule) -> tvm.IRModule:
    """Make views of calls that only reshape, as TVM does when it compiles a static graph.

    Of dynamic sizes it makes none, and its pass ends with an error at some of them.
    """
    return module if is_dynamic(module) else relax.transform.RewriteDataflowReshape()(module)


def _read_parameters(main: relax.Function) -> tuple[tuple[tuple[int, ...], str], ...]:
    kinds = [one.ty for one in main.params if not isinstance(one.ty, relax.ShapeType)]
    if not all(isinstance(getattr(kind, "shape", None), relax.ShapeExpr) for kind in kinds):
        return ()
    if not all(isinstance(n, tvm.tirx.IntImm) for kind in kinds for n in kind.shape.values):
        return ()
    return tuple((tuple(map(int, kind.shape.values)), str(kind.dtype)) for kind in kinds)


def _read_size_steps(main: relax.Function) -> tuple[int, ...]:
    sizes = [one.ty.values for one in main.params if isinstance(one.ty, relax.ShapeType)]
    known = [n for values in sizes for n in values or ()]
    return tuple(int(n) for n in known if isinstance(n, tvm.tirx.IntImm))


def _compile_executable(module: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Executable:
    """Compile a model; kernels check their arguments where a size does not follow from the inputs.

    Otherwise inputs are checked once for a call, and weights once when they are loaded. The checks
    of kernels would be up to two thirds of a library, and take as long to compile.
    """
    backend = backend_of(target)
    if backend.runs_unscheduled_loops:
        with pass_context({"tirx.disable_assert": not has_computed_sizes(module)}):
            return compile_model(module, target)
    for name, function in list_prim_funcs(module):
        alone = tvm.IRModule({name: function})
        if not kernels.is_threaded(alone, target):
            raise StageError(
                f"{name} has no schedule for {backend}, which can not run plain loops; "
                "schedules.fallback should name `default`"
            )
    with use_kernel_compiler(target):
        return compile_model(module, target)


def export(built: Built, path: Path, linker: Linker | None = None) -> None:
    """Write the library, and beside it those that it calls. The same module gives the same bytes.

    Null is the linker that TVM finds, which links for this machine.

    Raises StageError if it can not be linked, as with a linker that does not know the target,
    ForeignCode (a StageError) if it does more than compute, and StoreError if the disk is full.
    """
    try:
        linked = linking.list_linker_options(built.libraries)
        linked += [linking.STRIPPED] if built.stripped else []
        linked += linker.options if linker is not None else []
        export_library(built.executable, path, linked, linker.path if linker is not None else None)
        linking.copy_libraries(built.libraries, path.parent)
    except RuntimeError as error:
        if words := refusal.find_refusal(str(error)):
            raise StoreError(f"{path}: {words}") from error
        if missing := refusal.explain_memory_refusal(str(error)):
            raise StageError(f"linking failed: {missing}") from error
        lines = [line for line in str(error).splitlines() if "error" in line.lower()]
        told = lines[1] if len(lines) > 1 else str(error).strip().splitlines()[-1]
        advice = "CXX may name another compiler, and `autopipe doctor` tries the one there is"
        if linker is not None:
            advice = f"target.linker is {linker.path}, and `autopipe doctor FILE` tries it"
        raise StageError(f"linking failed: {told.strip()}; {advice}") from error
