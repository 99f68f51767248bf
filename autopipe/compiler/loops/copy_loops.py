"""Copies loop nests: TVM wants each variable bound once in a function."""

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock


def copy_loop_nest(nest: tirx.Stmt, buffers: Sequence[tuple[Any, Any]] = ()) -> tirx.Stmt:
    """Return a loop nest with variables of its own, and with some buffers in place of others."""
    loops: list[tirx.For] = []
    binds: list[tirx.Bind | tirx.Let] = []
    allocated: list[tirx.AllocBuffer] = []
    tvm_ffi.structural_walk(
        nest,
        [
            (tirx.For, loops.append),
            ((tirx.Bind, tirx.Let), binds.append),
            ((tirx.AllocBuffer, tirx.DeclBuffer), allocated.append),
        ],
    )
    known = [*(loop.loop_var for loop in loops), *(bind.var for bind in binds)]
    known += [one.buffer for one in allocated]
    for block in list_blocks(nest):
        known += [*(axis.var for axis in block.iter_vars), *block.alloc_buffers]
    changes = [*((var, tirx.Var(var.name, var.ty)) for var in known), *buffers]

    def replaced(var: tvm.ir.Var) -> tvm.ir.Var:
        return next((new for known, new in changes if known.same_as(var)), var)

    return tvm_ffi.structural_map(nest, (tvm.ir.Var, replaced))


def list_blocks(nest: tirx.Stmt) -> list[SBlock]:
    """Return the blocks of a nest, the outermost first."""
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(nest, (SBlock, blocks.append))
    return blocks
