"""Task extraction: every PrimFunc of the lowered module, equal workloads as one task.

After the RFC "A general task extraction mechanism for auto_scheduler": a task is a whole primitive
function, whatever it holds; which of them are worth tuning is decided afterwards.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm.s_tir.analysis import estimate_tir_flops

from autopipe.compiler.calls import callees
from autopipe.compiler.module_io import prim_funcs
from autopipe.compiler.op_info import carried
from autopipe.op_info import ATTRIBUTE, OpInfo
from autopipe.task import Task
from autopipe.tensor import Tensor

_NAMING = ("global_symbol", "op_pattern", ATTRIBUTE)
"""Attributes that name or describe a PrimFunc without changing what it computes."""

_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Workload:
    """A PrimFunc without its name, as the `main` of a module of its own."""

    identity: str
    """TVM's structural hash, as 16 hex digits."""
    module: tvm.IRModule


def workload(function: tvm.tirx.PrimFunc) -> Workload:
    """Return what a PrimFunc computes, apart from how it is called."""
    for attribute in _NAMING:
        function = function.without_attr(attribute)
    identity = tvm_ffi.structural_hash(function) & _MASK
    return Workload(
        f"{identity:016x}", tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    )


def extract_tasks(lowered: tvm.IRModule) -> tuple[list[Task], dict[str, tvm.IRModule]]:
    """Return the tasks of a lowered module by first use, and the module of each workload.

    PrimFuncs that are structurally equal are one task whose `calls` add up.
    """
    calls = Counter(callees(lowered["main"]))
    bodies = dict(prim_funcs(lowered))
    names: dict[str, list[str]] = {}
    workloads: dict[str, Workload] = {}
    for name in calls:
        found = _distinct(workload(bodies[name]), workloads)
        workloads.setdefault(found.identity, found)
        names.setdefault(found.identity, []).append(name)
    tasks = [
        _task(index, workloads[identity], same, carried(bodies[same[0]])).model_copy(
            update={"calls": sum(calls[name] for name in same)}
        )
        for index, (identity, same) in enumerate(names.items())
    ]
    return tasks, {identity: found.module for identity, found in workloads.items()}


def _distinct(new: Workload, known: Mapping[str, Workload]) -> Workload:
    """Give a workload another identity where its 64-bit hash is taken by a different one."""
    same = known.get(new.identity)
    if same is None or tvm_ffi.structural_equal(same.module, new.module):
        return new
    return _distinct(Workload(f"{int(new.identity, 16) + 1 & _MASK:016x}", new.module), known)


def _task(index: int, found: Workload, names: Sequence[str], info: OpInfo) -> Task:
    blocks = _sblocks(found.module)
    written = [region.source for block in blocks for region in block.writes]
    params = found.module["main"].params
    arguments = [p for p in params if isinstance(p.ty, tvm.tirx.BufferType)]
    is_output = [any(buffer.same_as(p) for buffer in written) for p in arguments]
    tensors = list(zip(map(_tensor, arguments), is_output, strict=True))
    return Task(
        index=index,
        name=names[0],
        workload=found.identity,
        functions=tuple(names),
        calls=1,
        info=info,
        reductions=sum(map(_is_reduction, blocks)),
        inputs=tuple(tensor for tensor, out in tensors if not out),
        outputs=tuple(tensor for tensor, out in tensors if out),
        flops=_flops(found.module),
        bytes=sum(_bytes(tensor) for tensor, _ in tensors),
        dropped=None,
    )


def _tensor(buffer: tvm.tirx.Buffer) -> Tensor:
    shape = tuple(int(d) if isinstance(d, tvm.tirx.IntImm) else -1 for d in buffer.shape)
    return Tensor(shape=shape, dtype=str(buffer.dtype))


def _bytes(tensor: Tensor) -> int:
    count = 1
    for extent in tensor.shape:
        count *= max(extent, 0)
    return count * max(1, int(tvm.runtime.DataType(tensor.dtype).bits) // 8)


def _sblocks(module: tvm.IRModule) -> list[tvm.s_tir.SBlock]:
    """Return the blocks below the root, or none where TIR is not made of blocks."""
    try:
        schedule = tvm.s_tir.Schedule(module)
        found: list[tvm.s_tir.SBlock] = []
        open_blocks = [schedule.get_sblock("root")]
        while open_blocks:
            children = schedule.get_child_blocks(open_blocks.pop())
            found.extend(schedule.get(child) for child in children)
            open_blocks.extend(children)
    except RuntimeError:  # ScheduleError is one
        return []
    return found


def _is_reduction(block: tvm.s_tir.SBlock) -> bool:
    return any(axis.iter_type == tvm.tirx.IterVar.CommReduce for axis in block.iter_vars)


def _flops(module: tvm.IRModule) -> float:
    try:
        return float(estimate_tir_flops(module))
    except RuntimeError:  # symbolic extents and while loops have no count
        return 0.0
