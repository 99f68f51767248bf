"""Schedules that end badly, for real."""

import tvm
from tvm import te
from tvm.s_tir import SBlock, Schedule
from tvm.tirx import BufferStore, Evaluate, SeqStmt, call_extern, call_llvm_pure_intrin, const


def _call(name, *arguments):
    return lambda store: SeqStmt([Evaluate(call_extern("int32", name, *arguments)), store])


def _foreign(store):
    """Use an instruction of a GPU, at which LLVM gives up on the process."""
    value = call_llvm_pure_intrin("float32", "llvm.amdgcn.rcp.f32", store.value)
    return BufferStore(store.buffer, value, store.indices)


WAYS = {"crash": _call("abort"), "hang": _call("sleep", const(1000, "int32")), "compiler": _foreign}
"""What becomes of a store."""

ENDS = {"crash": "killed by SIGABRT", "hang": "no answer within", "compiler": "killed by SIGABRT"}
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
