"""Task extraction: each PrimFunc of the lowered module is a task; equal ones are one task.

After the RFC "A general task extraction mechanism for auto_scheduler": a task is a whole primitive
function, whatever it computes. Which tasks are worth tuning is decided later.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm.ir import Call, TensorLoad
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.tirx import BufferStore, For

from autopipe.compiler.dynamic_sizes.kernel_sizes import (
    bind_kernel_sizes,
    bind_likely_sizes,
    read_open_sizes,
)
from autopipe.compiler.dynamic_sizes.likely_kernels import LikelyKernels
from autopipe.compiler.graph.calls import count_calls, find_weight_arguments
from autopipe.compiler.graph.literals import describe_buffer
from autopipe.compiler.labels.op_info import read_op_info
from autopipe.compiler.loops import count_operations
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.recurrence import form
from autopipe.compiler.step_counter import count_each
from autopipe.tasks.op_info import ATTRIBUTE, OpInfo
from autopipe.tasks.task import Task

_NAMING = ("global_symbol", "op_pattern", ATTRIBUTE)
"""Attributes that name or describe a PrimFunc without changing what it computes."""

_MASK = 2**64 - 1

_EXTERN = frozenset({"tirx.call_extern", "tirx.call_packed", "tirx.tvm_call_packed"})
"""Calls of functions that TVM does not know. Those of libm are `call_pure_extern`."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A PrimFunc without its name: the `main` of a module of its own."""

    identity: str
    """TVM's structural hash, as 16 hex digits."""
    module: tvm.IRModule


def make_workload(function: tvm.tirx.PrimFunc) -> Workload:
    """Return the workload of a PrimFunc: what it computes, without its name."""
    for attribute in _NAMING:
        function = function.without_attr(attribute)
    # free are buffers that annotations of TOPI keep and nothing uses, each time others
    identity = tvm_ffi.structural_hash(function, map_free_vars=True) & _MASK
    return Workload(
        f"{identity:016x}", tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    )


def append_label(name: str, label: str) -> str:
    """Return the name of a PrimFunc of a module with that label: `fused_matmul@8x128`."""
    return f"{name}@{label}" if label else name


def parse_label(name: str) -> str:
    """Return the label behind a name, such as likely sizes: `8x128` of `matmul@8x128@40`."""
    return (*name.split("@"), "")[1]


def extract_tasks(
    lowered: tvm.IRModule | Mapping[str, tvm.IRModule],
) -> tuple[list[Task], dict[str, tvm.IRModule]]:
    """Return the tasks of a lowered module in the order of first use, and each workload's module.

    PrimFuncs that are structurally equal are one task whose `calls` add up. With open sizes there
    are several modules, by label, and the tasks of all of them are in one table. A PrimFunc whose
    sizes the model computes is there twice: as it is, and with as many as are likely.
    """
    modules = lowered if isinstance(lowered, Mapping) else {"": lowered}
    calls: Counter[str] = Counter()
    bodies: dict[str, tvm.tirx.PrimFunc] = {}
    weights: dict[str, frozenset[int]] = {}
    for label, module in modules.items():
        counts = count_calls(module)
        constant = find_weight_arguments(module)
        if label or len(modules) == 1:  # else its likely sizes have a module of their own
            for name, at, body in _list_likely_kernels(module):
                full = append_label(append_label(name, label), at)
                calls[full], bodies[full] = counts[name], body
                weights[full] = constant.get(name, frozenset())
        calls.update({append_label(name, label): n for name, n in counts.items()})
        weights.update({append_label(name, label): found for name, found in constant.items()})
        bodies.update({append_label(name, label): body for name, body in list_prim_funcs(module)})
    names: dict[str, list[str]] = {}
    workloads: dict[str, Workload] = {}
    for name in count_each("kernels compared", list(calls)):
        found = _resolve_collision(make_workload(bodies[name]), workloads)
        workloads.setdefault(found.identity, found)
        names.setdefault(found.identity, []).append(name)
    kernels = {identity: found.module for identity, found in workloads.items()}
    likely = LikelyKernels(modules, kernels)
    tasks = [
        make_task(index, workloads[identity], same, read_op_info(bodies[same[0]])).model_copy(
            update={
                "calls": sum(calls[name] for name in same),
                "weights": _find_shared_weights(same, weights),
                **_list_likely_fields(likely.of(kernels[identity])),
            }
        )
        for index, (identity, same) in enumerate(names.items())
    ]
    return tasks, kernels


def _list_likely_fields(workloads: Sequence[str]) -> dict[str, object]:
    """Return the fields of a task that say what it is at likely sizes; none if no task is that."""
    return {"likely": workloads[0], "also_likely": workloads[1:]} if workloads else {}


def _find_shared_weights(
    names: Sequence[str], weights: Mapping[str, frozenset[int]]
) -> tuple[int, ...]:
    """Return the arguments that are weights in all of these PrimFuncs."""
    return tuple(
        sorted(frozenset.intersection(*(weights.get(name, frozenset()) for name in names)))
    )


def _list_likely_kernels(module: tvm.IRModule) -> Iterator[tuple[str, str, tvm.tirx.PrimFunc]]:
    """Yield PrimFuncs of open sizes as they are at likely ones: name, these sizes, function."""
    for name, function in list_prim_funcs(module):
        known = read_open_sizes(function)
        if known is None:
            continue
        at = "x".join(map(str, known.likely.values()))
        body = bind_kernel_sizes(tvm.IRModule({"main": function}), known.likely)["main"]
        info = _fix_op_sizes(read_op_info(function), set(known.likely.values()))
        yield name, at, body.with_attr(ATTRIBUTE, info.model_dump_json())


def _fix_op_sizes(info: OpInfo, sizes: Collection[int]) -> OpInfo:
    """Return op information without open sizes; with several sizes nobody knows which is which."""
    ops = []
    for op in info.ops:
        outputs = op.outputs
        if any(size < 0 for tensor in outputs for size in tensor.shape):
            (likely, *others) = sizes
            outputs = () if others else tuple(
                tensor.model_copy(
                    update={"shape": tuple(likely if s < 0 else s for s in tensor.shape)}
                )
                for tensor in outputs
            )  # fmt: skip
        ops.append(op.model_copy(update={"outputs": outputs}))
    return info.model_copy(update={"ops": tuple(ops)})


def _resolve_collision(new: Workload, known: Mapping[str, Workload]) -> Workload:
    """Give a workload another identity if a different workload has the same 64-bit hash."""
    same = known.get(new.identity)
    if same is None or tvm_ffi.structural_equal(same.module, new.module, map_free_vars=True):
        return new
    return _resolve_collision(
        Workload(f"{int(new.identity, 16) + 1 & _MASK:016x}", new.module), known
    )


def make_task(index: int, found: Workload, names: Sequence[str], info: OpInfo) -> Task:
    """Return the task of a workload that is called once."""
    instance = bind_likely_sizes(found.module)
    blocks = _list_blocks(found.module)
    params = found.module["main"].params
    arguments = [p for p in params if isinstance(p.ty, tvm.tirx.BufferType)]
    tensors = list(map(describe_buffer, arguments))
    first = len(tensors) - (len(info.results) or _count_outputs(found.module["main"], arguments))
    return Task(
        index=index,
        name=names[0],
        workload=found.identity,
        functions=tuple(names),
        calls=1,
        info=info,
        reductions=sum(map(_is_reduction, blocks)),
        inputs=tuple(tensors[:first]),
        outputs=tuple(tensors[first:]),
        sizes=len(params) - len(arguments),
        likely=None if instance is None else make_workload(instance["main"]).identity,
        flops=max(
            _estimate_flops(found.module),
            sum(map(_count_reductions, blocks)),
            _count_recurrent_flops(found.module),
        ),
        bytes=sum(tensor.bytes for tensor in tensors),
        opaque=not blocks or any(map(_is_opaque, blocks)),
        idle=bool(blocks) and all(map(_is_idle, blocks)),
        dropped=None,
    )


def _count_outputs(function: tvm.tirx.PrimFunc, arguments: Sequence[tvm.tirx.Buffer]) -> int:
    """Return how many of the last arguments are outputs; one if the function does not say."""
    stores: list[BufferStore] = []
    tvm_ffi.structural_walk(function.body, (BufferStore, stores.append))
    read = [i for i, p in enumerate(arguments) if not any(s.buffer.same_as(p) for s in stores)]
    return len(arguments) - 1 - read[-1] or 1 if read else len(arguments)


def _list_blocks(module: tvm.IRModule) -> list[tvm.s_tir.SBlock]:
    """Return the blocks below the root. There are none if the TIR is not made of blocks."""
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


def _count_reductions(block: tvm.s_tir.SBlock) -> float:
    """Return how many values a block reduces. TVM does not count a comparison as an operation."""
    extents = [axis.dom.extent for axis in block.iter_vars]
    known = all(isinstance(extent, tvm.tirx.IntImm) for extent in extents)
    return float(math.prod(map(int, extents))) if known and _is_reduction(block) else 0.0


def _count_recurrent_flops(module: tvm.IRModule) -> float:
    """Return the operations of a recurrent layer, whose products are in no single block."""
    found = form.parse_form(str((module["main"].attrs or {}).get(form.ATTRIBUTE, "")))
    return found.flops if found else 0.0


def _is_opaque(block: tvm.s_tir.SBlock) -> bool:
    """Tell whether a block does not declare its writes, or calls a function unknown to TVM."""
    calls: list[Call] = []
    tvm_ffi.structural_walk(block.body, (Call, calls.append))
    return not block.writes or any(getattr(call.op, "name", "") in _EXTERN for call in calls)


def _is_idle(block: tvm.s_tir.SBlock) -> bool:
    """Tell whether a block stores a constant, or copies elements onto themselves."""
    store = block.body
    if not isinstance(store, BufferStore):
        return False
    if isinstance(store.value, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return True
    return isinstance(store.value, TensorLoad) and tvm_ffi.structural_equal(
        store.value.indices, store.indices
    )


def _estimate_flops(module: tvm.IRModule) -> float:
    loops: list[For] = []
    tvm_ffi.structural_walk(module["main"].body, (For, loops.append))
    if any(_has_loads(loop.extent) for loop in loops):  # TVM takes the dtype's largest number
        return 0.0
    try:
        counted = float(estimate_tir_flops(module))
    except RuntimeError:  # symbolic extents and while loops have no count
        return 0.0
    bound = count_operations.bound_operations(module["main"])
    return min(counted, bound) if math.isfinite(bound) else 0.0


def _has_loads(expression: tvm.ir.Expr) -> bool:
    """Tell whether a value is an element of a tensor, so that it is known only at run time."""
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(expression, (TensorLoad, loads.append))
    return bool(loads)
