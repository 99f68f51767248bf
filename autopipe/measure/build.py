"""Compiles a candidate in this process, ready to be called."""

from dataclasses import dataclass

import tvm
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import For, PrimFunc, SeqStmt, stmt_seq

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.graph import elementary, weights
from autopipe.compiler.library import linking
from autopipe.compiler.loops.element_copies import ElementCopies


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled candidate."""

    library: tvm.runtime.Module
    """TVM's runtime module; holds `main`."""
    module: tvm.IRModule
    """What was compiled; its `main` says which arguments it wants."""


def build_kernel(
    module: tvm.IRModule, target: tvm.target.Target, *, asserts: bool = False
) -> Kernel:
    """Compile the scheduled `main` of a module for this machine.

    Weights are taken in the layout the schedule asks for, as in the built model, where they are
    repacked at compile time. Checks of the arguments are left out unless there are to be `asserts`:
    they are not part of the kernel, and compiling them takes an eighth of the time. Raises
    ForeignCode as `compile_module`.
    """
    linking.load_libraries(module)
    module = without_weights(module)
    library = compile_module(module, target, asserts=asserts)
    _ = library["main"]  # machine code is made on first use
    return Kernel(library, module)


def compile_module(
    module: tvm.IRModule, target: tvm.target.Target, *, asserts: bool = False
) -> tvm.runtime.Module:
    """Return TVM's runtime module of a scheduled `main`, for whatever machine.

    Raises ForeignCode for one that brings code along.
    """
    config = {"tirx.disable_assert": not asserts}
    with tvm.transform.PassContext(opt_level=3, config=config):
        return compile_kernel(elementary.expand_for_target(module, target), target)


def without_weights(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with a `main` that takes weights as the model's build leaves them.

    It is the module itself where nothing is done to them.
    """
    return split_weights(module).kernel


@dataclass(frozen=True, slots=True)
class SplitKernel:
    """A schedule in the two parts that the build makes of it."""

    kernel: tvm.IRModule
    """Its `main` takes packed weights; the scheduled module itself if it packs none."""
    packing: PrimFunc | None = None
    """Takes weights as the workload has them, then the packed ones, which it writes."""
    positions: tuple[int, ...] = ()
    """Which arguments of the kernel are packed, in the order of `packing`."""

    @property
    def compiled_packing(self) -> PrimFunc | None:
        """The packing if it does more than `ElementCopies`, which take no machine code."""
        copies = self.packing is not None and ElementCopies.of(self.packing)
        return None if copies else self.packing


def split_weights(module: tvm.IRModule) -> SplitKernel:
    """Split the scheduled `main` of a module into its work on weights, and the rest.

    TVM has a pass for it, which refuses all work on weights but copies.
    """
    function = module["main"]
    root = function.body.block if isinstance(function.body, SBlockRealize) else None
    if root is None or not isinstance(root.body, SeqStmt):
        return SplitKernel(module)
    made, nests, packing = {}, [], []
    for nest in root.body.seq:
        block = _find_only_block(nest)
        if block is not None and weights.MARK in block.annotations:
            made[block.reads[0].source] = block.writes[0].source
            packing.append(nest)
        else:
            nests.append(nest)
    if not made:
        return SplitKernel(module)
    buffers = [buffer for buffer in root.alloc_buffers if buffer not in made.values()]
    block = SBlock(
        [], [], [], "root", stmt_seq(*nests), alloc_buffers=buffers, annotations=root.annotations
    )
    body = SBlockRealize([], True, block)  # noqa: FBT003 - TVM's signature
    params = [made.get(param, param) for param in function.params]
    kernel = PrimFunc(params, body, function.ret_type, function.attrs)
    positions = [at for at, param in enumerate(function.params) if param in made]
    given = [function.params[at] for at in positions]
    root = SBlock([], [], [], "root", stmt_seq(*packing))
    work = PrimFunc(
        [*given, *(made[param] for param in given)],
        SBlockRealize([], True, root),  # noqa: FBT003 - likewise
    )
    return SplitKernel(tvm.IRModule({"main": kernel}), work, tuple(positions))


def _find_only_block(nest: tvm.tirx.Stmt) -> SBlock | None:
    """Return the block that a loop nest is around, if it is around just one."""
    while isinstance(nest, For):
        nest = nest.body
    return nest.block if isinstance(nest, SBlockRealize) else None
