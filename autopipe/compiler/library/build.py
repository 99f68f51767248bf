"""Build a shared library from a lowered module and a schedule for each workload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import tvm
from tvm import relax

from autopipe.artifacts.model_nodes import KernelFunction
from autopipe.compiler.codegen.compile_kernels import LoweredModel, export_library, lower_model
from autopipe.compiler.dynamic_sizes.kernel_sizes import has_computed_sizes, is_dynamic
from autopipe.compiler.graph.literals import has_static_sizes
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
    """The transforms of weights before they are stored, such as layouts that schedules use."""
    libraries: tuple[Library, ...] = ()
    """The libraries that the code calls besides TVM's runtime."""
    parameters: tuple[tuple[tuple[int, ...], str], ...] = ()
    """Shape and dtype of each tensor that `main` takes; empty where one has no known size."""
    steps: tuple[int, ...] = ()
    """Multiples of each dynamic size, which `main` takes behind the inputs where it is specialized
    for one size."""
    functions: tuple[KernelFunction, ...] = ()
    """The kernel calls of the graph, and the nodes of the model that they are made of."""
    stripped: bool = False
    """Whether it is linked without debug information: TVM describes the variables of kernels for
    debuggers, without a source line, which is half of a library with dynamic shapes."""


_PART: Final = 4
"""Maximum kernels of a part: a module of LLVM takes a quarter of the time of one of its kernels."""


@dataclass(frozen=True, slots=True)
class LinkedGraph:
    """A graph with its scheduled kernels, not yet compiled."""

    module: tvm.IRModule
    packing: tvm.IRModule
    """As in `Built`."""
    target: tvm.target.Target
    is_dynamic: bool
    """Whether the lowered module has a dynamic dimension."""


@dataclass(frozen=True, slots=True)
class SplitGraph:
    """A linked graph whose kernels are compiled in parts, each to an object file."""

    linked: LinkedGraph
    lowered: LoweredModel
    parts: tuple[tuple[str, ...], ...] = ()
    """The names of the kernels of each part; without parts, the executable has them."""

    def list_objects(self, folder: Path) -> list[Path]:
        """List the paths of the object files of all parts in a folder."""
        return [folder / f"part{number}.o" for number, _ in enumerate(self.parts)]

    def compile_part(self, number: int, folder: Path) -> None:
        """Write the object file of a part to a folder. Raises ForeignCode."""
        with self.linked.target, _kernel_context(self.linked):
            compiled = self.lowered.compile_kernels(self.parts[number])
        compiled.write_to_file(str(self.list_objects(folder)[number]))


def build_library(
    lowered_module: tvm.IRModule,
    scheduled_kernels: Mapping[str, tvm.IRModule],
    target: tvm.target.Target,
) -> Built:
    """Compile the lowered module with the scheduled body of each PrimFunc.

    Takes what `link_graph` does, and raises what it and `compile_graph` do.
    """
    return compile_graph(lower_graph(link_graph(lowered_module, scheduled_kernels, target)))


def link_graph(
    lowered_module: tvm.IRModule,
    scheduled_kernels: Mapping[str, tvm.IRModule],
    target: tvm.target.Target,
    *,
    packs_at_load: bool = False,
) -> LinkedGraph:
    """Replace each PrimFunc of a lowered module by its schedule; split off work on weights.

    `scheduled_kernels` maps the name of each PrimFunc to a module with the scheduled PrimFunc as
    `main`. With `packs_at_load` the library itself packs weights that grow much.
    """
    state = LinkState(target=target, scheduled=scheduled_kernels, packs_at_load=packs_at_load)
    with target, pass_context():
        module = run_passes(lowered_module, LINK, state)
    return LinkedGraph(module, state.packing, target, is_dynamic(lowered_module))


def lower_graph(graph: LinkedGraph) -> SplitGraph:
    """Lower a linked graph to calls of its kernels, in no parts. Raises ForeignCode."""
    with graph.target, pass_context():
        return SplitGraph(graph, lower_model(graph.module, graph.target))


def split_kernels(graph: SplitGraph) -> SplitGraph:
    """Split the kernels of a graph into parts, by a rule that depends on the graph alone.

    So the library is the same on every machine. Neighbours by name are alike, and each is in
    another part, so that the parts take as long. A GPU's kernels are in no object file.
    """
    if not backend_of(graph.linked.target).runs_unscheduled_loops:
        return graph
    names = [name for name, _ in list_prim_funcs(graph.lowered.module)]
    count = -(-len(names) // _PART)
    return replace(graph, parts=tuple(tuple(names[at::count]) for at in range(count)))


def compile_graph(graph: SplitGraph) -> Built:
    """Compile a graph, and its kernels that are in no part.

    Raises SetupError if the compiler for a GPU is missing, StageError if a kernel cannot be
    compiled, and ForeignCode (a StageError) if a schedule carries code.
    """
    module = graph.linked.module
    with graph.linked.target, _kernel_context(graph.linked):
        executable = _compile_executable(graph)
    return Built(
        executable=executable,
        packing=graph.linked.packing,
        libraries=linking.find_libraries(module),
        parameters=_read_parameters(module["main"]),
        steps=_read_size_steps(module["main"]),
        functions=list_kernel_functions(_replace_reshapes(module)),
        stripped=graph.linked.is_dynamic,
    )


def _replace_reshapes(module: tvm.IRModule) -> tvm.IRModule:
    """Replace calls that only reshape by views, as TVM does when it compiles a static graph.

    For dynamic shapes it makes none, and its pass raises an error for some of them.
    """
    return module if is_dynamic(module) else relax.transform.RewriteDataflowReshape()(module)


def _read_parameters(main: relax.Function) -> tuple[tuple[tuple[int, ...], str], ...]:
    kinds = [param.ty for param in main.params if not isinstance(param.ty, relax.ShapeType)]
    if not all(isinstance(kind, relax.TensorType) and has_static_sizes(kind) for kind in kinds):
        return ()
    return tuple((tuple(map(int, kind.shape.values)), str(kind.dtype)) for kind in kinds)


def _read_size_steps(main: relax.Function) -> tuple[int, ...]:
    sizes = [param.ty.values for param in main.params if isinstance(param.ty, relax.ShapeType)]
    extents = [n for values in sizes for n in values or ()]
    return tuple(int(n) for n in extents if isinstance(n, tvm.tirx.IntImm))


def _kernel_context(graph: LinkedGraph) -> tvm.transform.PassContext:
    """Build the context of kernels, which check their arguments for data-dependent shapes.

    Otherwise inputs are checked once for a call, and weights once when they are loaded. The checks
    of kernels would be up to two thirds of a library, and take as long to compile.
    """
    if not backend_of(graph.target).runs_unscheduled_loops:
        return pass_context()
    return pass_context({"tirx.disable_assert": not has_computed_sizes(graph.module)})


def _compile_executable(graph: SplitGraph) -> tvm.runtime.Executable:
    target, lowered = graph.linked.target, graph.lowered
    backend = backend_of(target)
    if backend.runs_unscheduled_loops:
        return lowered.compile_executable(has_kernels=not graph.parts)
    for name, function in list_prim_funcs(graph.linked.module):
        single_kernel = tvm.IRModule({name: function})
        if not kernels.is_threaded(single_kernel, target):
            raise StageError(
                f"{name} has no schedule for {backend}, which cannot run plain loops; "
                "schedules.fallback should name `default`"
            )
    with use_kernel_compiler(target):
        return lowered.compile_executable()


def export(
    built_model: Built, path: Path, linker: Linker | None = None, objects: Sequence[Path] = ()
) -> None:
    """Write the library, and beside it those that it calls. Equal modules give equal bytes.

    Null is the linker that TVM finds, which links for this machine. `objects` are the object files
    of the parts, in order.

    Raises StageError if it cannot be linked, as with a linker that does not know the target,
    ForeignCode (a StageError) if it does more than compute, and StoreError if the disk is full.
    """
    try:
        link_options = linking.list_linker_options(built_model.libraries)
        link_options += [linking.STRIPPED] if built_model.stripped else []
        link_options += linker.options if linker is not None else []
        export_library(
            built_model.executable, path, link_options, linker.path if linker else None, objects
        )
        linking.copy_libraries(built_model.libraries, path.parent)
    except RuntimeError as error:
        if words := refusal.find_refusal(str(error)):
            raise StoreError(f"{path}: {words}") from error
        if missing := refusal.explain_memory_refusal(str(error)):
            raise StageError(f"linking failed: {missing}") from error
        lines = [line for line in str(error).splitlines() if "error" in line.lower()]
        reason = lines[1] if len(lines) > 1 else str(error).strip().splitlines()[-1]
        advice = "CXX may name another compiler, and `autopipe doctor` tries the one there is"
        if linker is not None:
            advice = f"target.linker is {linker.path}, and `autopipe doctor FILE` tries it"
        raise StageError(f"linking failed: {reason.strip()}; {advice}") from error
