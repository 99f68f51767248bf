"""Copy loop nests: TVM requires that each variable is bound once in a function."""

from collections.abc import Sequence
from typing import Any, TypeVar

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from autopipe.compiler.find_nodes import find_nodes

_Part = TypeVar("_Part", bound=tvm.ir.Node)
"""A part of TIR."""


def copy_loop_nest(nest: tirx.Stmt, buffers: Sequence[tuple[Any, Any]] = ()) -> tirx.Stmt:
    """Copy a loop nest with fresh variables, and replace buffers by the pairs (old, new)."""
    loops: list[tirx.For] = []
    binds: list[tirx.Bind | tirx.Let] = []
    allocations: list[tirx.AllocBuffer] = []
    tvm_ffi.structural_walk(
        nest,
        [
            (tirx.For, loops.append),
            ((tirx.Bind, tirx.Let), binds.append),
            ((tirx.AllocBuffer, tirx.DeclBuffer), allocations.append),
        ],
    )
    variables = [*(loop.loop_var for loop in loops), *(bind.var for bind in binds)]
    variables += [allocation.buffer for allocation in allocations]
    for block in list_blocks(nest):
        variables += [*(axis.var for axis in block.iter_vars), *block.alloc_buffers]
    changes = [*((var, tirx.Var(var.name, var.ty)) for var in variables), *buffers]
    return replace_variables(nest, changes)


def replace_variables(part: _Part, changes: Sequence[tuple[Any, Any]]) -> _Part:
    """Replace variables and buffers in a part of TIR by the pairs (old, new)."""

    def replaced(var: tvm.ir.Var) -> tvm.ir.Expr:
        return next((new for old, new in changes if old.same_as(var)), var)

    new_part: _Part = tvm_ffi.structural_map(part, (tvm.ir.Var, replaced))
    return new_part


def copy_root(root: SBlock, body: tirx.Stmt, buffers: Sequence[tvm.ir.Var] | None = None) -> SBlock:
    """Return a copy of a root block with another body.

    `buffers` are the intermediate buffers that it allocates; None keeps the present ones.
    """
    return SBlock(
        [], root.reads, root.writes, root.name_hint, body,
        alloc_buffers=root.alloc_buffers if buffers is None else buffers,
        annotations=root.annotations,
    )  # fmt: skip


def list_blocks(nest: tirx.Stmt) -> list[SBlock]:
    """List the blocks of a loop nest, the outermost first."""
    return find_nodes(nest, SBlock)
