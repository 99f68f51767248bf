"""Compile a candidate in this process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import For, PrimFunc, SeqStmt, stmt_seq

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.dynamic_sizes.kernel_sizes import open_variables
from autopipe.compiler.graph import elementary, weights
from autopipe.compiler.library import linking
from autopipe.compiler.loops.element_copies import ElementCopies


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled candidate."""

    library: tvm.runtime.Module
    """TVM's runtime module; holds the kernel, and may hold others."""
    module: tvm.IRModule
    """The compiled module; its `main` has the signature of the kernel."""
    name: str = "main"
    """The name of the kernel in the library."""


def build_kernel(
    module: tvm.IRModule, target: tvm.target.Target, *, asserts: bool = False
) -> Kernel:
    """Compile the scheduled `main` of a module for this machine. Raises as `build_kernels`."""
    return build_kernels([module], target, asserts=asserts)[0]


def build_kernels(
    modules: Sequence[tvm.IRModule], target: tvm.target.Target, *, asserts: bool = False
) -> list[Kernel]:
    """Compile the scheduled `main` of each module for this machine.

    Those of static sizes are compiled in one module, and those of dynamic sizes in another: to
    start LLVM takes a fifth of the time of a kernel.

    A kernel takes weights in the layout of the schedule, as in the compiled model, where they are
    packed at compile time. Checks of the arguments are omitted without `asserts`: they are not part
    of the kernel, and compiling them takes an eighth of the time. Raises ForeignCode as
    `compile_module`.
    """
    bare_modules: dict[str, tvm.IRModule] = {}
    for module in modules:
        linking.load_libraries(module)
        bare_modules[f"main{len(bare_modules) or ''}"] = without_weights(module)
    libraries: dict[str, tvm.runtime.Module] = {}
    for names in _split_by_sizes(bare_modules):
        functions = {
            name: bare_modules[name]["main"].with_attr("global_symbol", name) for name in names
        }
        library = compile_module(tvm.IRModule(functions), target, asserts=asserts)
        libraries |= dict.fromkeys(names, library)
    for name, library in libraries.items():
        _ = library[name]  # machine code is made on first use
    return [Kernel(libraries[name], module, name) for name, module in bare_modules.items()]


def _split_by_sizes(modules: Mapping[str, tvm.IRModule]) -> list[list[str]]:
    """Split names into those of functions with static sizes, and with dynamic ones."""
    dynamic_names = [name for name, module in modules.items() if open_variables(module["main"])]
    static_names = [name for name in modules if name not in dynamic_names]
    return [names for names in (static_names, dynamic_names) if names]


def compile_module(
    module: tvm.IRModule, target: tvm.target.Target, *, asserts: bool = False
) -> tvm.runtime.Module:
    """Compile scheduled functions to TVM's runtime module, for any machine.

    Raises ForeignCode for a module that contains foreign code.
    """
    config = {"tirx.disable_assert": not asserts}
    with tvm.transform.PassContext(opt_level=3, config=config):
        return compile_kernel(elementary.expand_for_target(module, target), target)


def without_weights(module: tvm.IRModule) -> tvm.IRModule:
    """Remove the packing of weights from `main`, which then takes packed weights.

    Returns the module itself if it packs none.
    """
    return split_weights(module).kernel


@dataclass(frozen=True, slots=True)
class SplitKernel:
    """A schedule split into its kernel and its packing of weights, as in a build."""

    kernel: tvm.IRModule
    """Its `main` takes packed weights; the scheduled module itself if it packs none."""
    packing: PrimFunc | None = None
    """Takes weights in the layout of the workload, then the packed weights, which it writes."""
    positions: tuple[int, ...] = ()
    """Positions of packed arguments of the kernel, in the order of `packing`."""
    copies: ElementCopies | None = None
    """The packing as copies of elements; None if it computes, or nothing is packed."""

    @property
    def compiled_packing(self) -> PrimFunc | None:
        """The packing unless it only copies elements, which needs no machine code."""
        return self.packing if self.copies is None else None


def split_weights(module: tvm.IRModule) -> SplitKernel:
    """Split the scheduled `main` of a module into its packing of weights, and the rest.

    TVM's pass for this refuses all work on weights except copies.
    """
    function = module["main"]
    root = function.body.block if isinstance(function.body, SBlockRealize) else None
    if root is None or not isinstance(root.body, SeqStmt):
        return SplitKernel(module)
    packed_buffers, nests, packing = {}, [], []
    for nest in root.body.seq:
        block = _find_only_block(nest)
        if block is not None and weights.MARK in block.annotations:
            packed_buffers[block.reads[0].source] = block.writes[0].source
            packing.append(nest)
        else:
            nests.append(nest)
    if not packed_buffers:
        return SplitKernel(module)
    buffers = [buffer for buffer in root.alloc_buffers if buffer not in packed_buffers.values()]
    block = SBlock(
        [], [], [], "root", stmt_seq(*nests), alloc_buffers=buffers, annotations=root.annotations
    )
    body = SBlockRealize([], True, block)  # noqa: FBT003 - TVM's signature
    params = [packed_buffers.get(param, param) for param in function.params]
    kernel = PrimFunc(params, body, function.ret_type, function.attrs)
    positions = [at for at, param in enumerate(function.params) if param in packed_buffers]
    unpacked_weights = [function.params[at] for at in positions]
    root = SBlock([], [], [], "root", stmt_seq(*packing))
    work = PrimFunc(
        [*unpacked_weights, *(packed_buffers[param] for param in unpacked_weights)],
        SBlockRealize([], True, root),  # noqa: FBT003 - likewise
    )
    module = tvm.IRModule({"main": kernel})
    return SplitKernel(module, work, tuple(positions), ElementCopies.of(work))


def _find_only_block(nest: tvm.tirx.Stmt) -> SBlock | None:
    """Return the only block of a loop nest, or None."""
    while isinstance(nest, For):
        nest = nest.body
    return nest.block if isinstance(nest, SBlockRealize) else None
