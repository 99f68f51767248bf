"""Schedules that end badly, for real."""

import platform

import tvm
from tvm import te
from tvm.ir import StringImm
from tvm.s_tir import SBlock, Schedule
from tvm.tirx import (
    AttrStmt,
    BufferStore,
    Cast,
    For,
    ForKind,
    SeqStmt,
    Shuffle,
    Var,
    call_llvm_pure_intrin,
    const,
    sin,
)  # fmt: skip

FAR = 1 << 45
"""An index that no memory has."""

_OFTEN = (1 << 31) - 1


def _crash(store):
    indices = [Cast("int64", index) for index in store.indices]
    indices[-1] = indices[-1] + const(FAR, "int64")  # type: ignore[call-overload]
    return SeqStmt([BufferStore(store.buffer, store.value, indices), store])


def _hang(store):
    """Compute what depends on what was computed before, for ever."""
    body = BufferStore(store.buffer, sin(store.buffer[tuple(store.indices)]), store.indices)
    for name in ("i", "j"):
        body = For(Var(name, "int32"), 0, _OFTEN, ForKind.SERIAL, body)  # type: ignore[assignment]
    return SeqStmt([store, body])


def _foreign(store):
    """Use an instruction of another processor, at which LLVM gives up on the process."""
    x86 = platform.machine() == "x86_64"
    name = "llvm.aarch64.neon.sdot" if x86 else "llvm.x86.avx512.vpdpbusd.128"
    zeros, kind = const(0, "int32x4"), "int8x16" if x86 else "int32x4"
    sums = call_llvm_pure_intrin("int32x4", name, zeros, const(0, kind), const(0, kind))
    value = store.value + Cast("float32", Shuffle([sums], [0]))
    return BufferStore(store.buffer, value, store.indices)


def _brought(store):
    """Bring LLVM IR along."""
    return AttrStmt(const(0), "pragma_import_llvm", StringImm('module asm "nop"'), store)


WAYS = {"crash": _crash, "hang": _hang, "compiler": _foreign, "brought": _brought}
"""What becomes of a store."""

_FOUND = "function main has the attribute statement 'pragma_import_llvm'"

ENDS = {
    "crash": "killed by SIGSEGV",
    "hang": "no answer within",
    "compiler": "killed by SIGABRT",
    "brought": f"autopipe.compiler.walls.foreign_code.ForeignCode: {_FOUND}",
}
"""How that is told."""


def doubled():
    """Return a small workload."""
    x = te.placeholder((4, 32), "float32")
    function = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] * 2.0)])
    return tvm.IRModule({"main": function})


def spoil(module, way):
    """Return a module whose last block ends badly as well."""
    sch = Schedule(module)
    spoil_block(sch, sch.get_child_blocks(sch.get_sblock("root"))[-1], way)
    return sch.mod


def spoil_block(sch, rv, way):
    """Have a block of a schedule end badly."""
    old = sch.get(rv)
    new = SBlock(
        old.iter_vars, old.reads, old.writes, old.name_hint, WAYS[way](old.body), old.init,
        old.alloc_buffers, old.match_buffers, old.annotations,
    )  # fmt: skip
    sch.state.replace(sch.get_sref(rv), new, {old: new})
