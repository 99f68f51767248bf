"""Task extraction: each PrimFunc of a lowered module is a task; equal ones share a task.

After the RFC "A general task extraction mechanism for auto_scheduler": a task is a whole primitive
function of any kind. Tasks to tune are selected later.
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
    read_dynamic_sizes,
)
from autopipe.compiler.dynamic_sizes.likely_kernels import LikelyKernels
from autopipe.compiler.find_nodes import find_nodes, list_loads
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
    """Build the workload of a PrimFunc, without its name."""
    for attribute in _NAMING:
        function = function.without_attr(attribute)
    # unused buffers in annotations of TOPI, which differ each time, are free variables
    identity = tvm_ffi.structural_hash(function, map_free_vars=True) & _MASK
    return Workload(
        f"{identity:016x}", tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    )


def append_label(name: str, label: str) -> str:
    """Append the label of its module to the name of a PrimFunc: `fused_matmul@8x128`."""
    return f"{name}@{label}" if label else name


def parse_label(name: str) -> str:
    """Parse the label after a name, such as likely sizes: `8x128` of `matmul@8x128@40`."""
    return (*name.split("@"), "")[1]


def extract_tasks(
    lowered_modules: tvm.IRModule | Mapping[str, tvm.IRModule],
) -> tuple[list[Task], dict[str, tvm.IRModule]]:
    """Extract the tasks of a lowered module in the order of first use, and each workload's module.

    Structurally equal PrimFuncs are one task with the sum of their `calls`. With dynamic shapes
    there are several modules, by label, and the tasks of all of them are in one table. A PrimFunc
    with data-dependent shapes has two tasks: with dynamic and with specialized sizes.
    """
    modules = lowered_modules if isinstance(lowered_modules, Mapping) else {"": lowered_modules}
    calls: Counter[str] = Counter()
    bodies: dict[str, tvm.tirx.PrimFunc] = {}
    weights: dict[str, frozenset[int]] = {}
    for label, module in modules.items():
        counts = count_calls(module)
        constant = find_weight_arguments(module)
        if label or len(modules) == 1:  # otherwise likely sizes have separate modules
            for name, at, body in _list_likely_kernels(module):
                full = append_label(append_label(name, label), at)
                calls[full], bodies[full] = counts[name], body
                weights[full] = constant.get(name, frozenset())
        calls.update({append_label(name, label): n for name, n in counts.items()})
        weights.update({append_label(name, label): at for name, at in constant.items()})
        bodies.update({append_label(name, label): body for name, body in list_prim_funcs(module)})
    names: dict[str, list[str]] = {}
    workloads: dict[str, Workload] = {}
    for name in count_each("kernels compared", list(calls)):
        workload = _resolve_collision(make_workload(bodies[name]), workloads)
        workloads.setdefault(workload.identity, workload)
        names.setdefault(workload.identity, []).append(name)
    kernels = {identity: workload.module for identity, workload in workloads.items()}
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
    """Return the fields of a task for its workloads at likely sizes; empty without any."""
    return {"likely": workloads[0], "also_likely": workloads[1:]} if workloads else {}


def _find_shared_weights(
    names: Sequence[str], weights: Mapping[str, frozenset[int]]
) -> tuple[int, ...]:
    """Find the arguments that are weights in all of these PrimFuncs."""
    return tuple(
        sorted(frozenset.intersection(*(weights.get(name, frozenset()) for name in names)))
    )


def _list_likely_kernels(module: tvm.IRModule) -> Iterator[tuple[str, str, tvm.tirx.PrimFunc]]:
    """Yield (name, sizes, function) of dynamic PrimFuncs, bound to their likely sizes."""
    for name, function in list_prim_funcs(module):
        sizes = read_dynamic_sizes(function)
        if sizes is None:
            continue
        at = "x".join(map(str, sizes.likely.values()))
        body = bind_kernel_sizes(tvm.IRModule({"main": function}), sizes.likely)["main"]
        info = _fix_op_sizes(read_op_info(function), set(sizes.likely.values()))
        yield name, at, body.with_attr(ATTRIBUTE, info.model_dump_json())


def _fix_op_sizes(info: OpInfo, sizes: Collection[int]) -> OpInfo:
    """Replace the dynamic size in op information; with several sizes outputs are dropped."""
    ops = []
    for op in info.ops:
        outputs = op.outputs
        if any(size < 0 for tensor in outputs for size in tensor.shape):
            (likely, *other_sizes) = sizes
            outputs = () if other_sizes else tuple(
                tensor.model_copy(
                    update={"shape": tuple(likely if s < 0 else s for s in tensor.shape)}
                )
                for tensor in outputs
            )  # fmt: skip
        ops.append(op.model_copy(update={"outputs": outputs}))
    return info.model_copy(update={"ops": tuple(ops)})


def _resolve_collision(new: Workload, workloads: Mapping[str, Workload]) -> Workload:
    """Give a workload another identity if a different workload has the same 64-bit hash."""
    previous = workloads.get(new.identity)
    if previous is None or tvm_ffi.structural_equal(
        previous.module, new.module, map_free_vars=True
    ):
        return new
    return _resolve_collision(
        Workload(f"{int(new.identity, 16) + 1 & _MASK:016x}", new.module), workloads
    )


def make_task(index: int, workload: Workload, names: Sequence[str], info: OpInfo) -> Task:
    """Build the task of a workload that is called once."""
    instance = bind_likely_sizes(workload.module)
    blocks = _list_blocks(workload.module)
    params = workload.module["main"].params
    arguments = [p for p in params if isinstance(p.ty, tvm.tirx.BufferType)]
    tensors = list(map(describe_buffer, arguments))
    first = len(tensors) - (len(info.results) or _count_outputs(workload.module["main"], arguments))
    return Task(
        index=index,
        name=names[0],
        workload=workload.identity,
        functions=tuple(names),
        calls=1,
        info=info,
        reductions=sum(map(_is_reduction, blocks)),
        inputs=tuple(tensors[:first]),
        outputs=tuple(tensors[first:]),
        sizes=len(params) - len(arguments),
        likely=None if instance is None else make_workload(instance["main"]).identity,
        flops=max(
            _estimate_flops(workload.module),
            sum(map(_count_reductions, blocks)),
            _count_recurrent_flops(workload.module),
        ),
        bytes=sum(tensor.bytes for tensor in tensors),
        opaque=not blocks or any(map(_is_opaque, blocks)),
        idle=bool(blocks) and all(map(_is_idle, blocks)),
        dropped=None,
    )


def _count_outputs(function: tvm.tirx.PrimFunc, arguments: Sequence[tvm.tirx.Buffer]) -> int:
    """Count the outputs among the last arguments; 1 if it cannot be determined."""
    stores = find_nodes(function.body, BufferStore)
    read = [i for i, p in enumerate(arguments) if not any(s.buffer.same_as(p) for s in stores)]
    return len(arguments) - 1 - read[-1] or 1 if read else len(arguments)


def _list_blocks(module: tvm.IRModule) -> list[tvm.s_tir.SBlock]:
    """List the blocks below the root; empty for TIR without blocks."""
    root = module["main"].body
    is_realized = isinstance(root, tvm.s_tir.SBlockRealize)
    return find_nodes(root.block.body, tvm.s_tir.SBlock) if is_realized else []


def _is_reduction(block: tvm.s_tir.SBlock) -> bool:
    return any(axis.iter_type == tvm.tirx.IterVar.CommReduce for axis in block.iter_vars)


def _count_reductions(block: tvm.s_tir.SBlock) -> float:
    """Count the reduced values of a block. TVM does not count comparisons as operations."""
    extents = [axis.dom.extent for axis in block.iter_vars]
    is_static = all(isinstance(extent, tvm.tirx.IntImm) for extent in extents)
    return float(math.prod(map(int, extents))) if is_static and _is_reduction(block) else 0.0


def _count_recurrent_flops(module: tvm.IRModule) -> float:
    """Count the operations of a recurrent layer, with matmuls that span several blocks."""
    recurrence = form.parse_form(str((module["main"].attrs or {}).get(form.ATTRIBUTE, "")))
    return recurrence.flops if recurrence else 0.0


def _is_opaque(block: tvm.s_tir.SBlock) -> bool:
    """Tell whether a block does not declare its writes, or calls a function unknown to TVM."""
    calls = find_nodes(block.body, Call)
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
    loops = find_nodes(module["main"].body, For)
    if any(list_loads(loop.extent) for loop in loops):  # TVM assumes the dtype's largest number
        return 0.0
    try:
        flops = float(estimate_tir_flops(module))
    except RuntimeError:  # symbolic extents and while loops have no count
        return 0.0
    bound = count_operations.bound_operations(module["main"])
    return min(flops, bound) if math.isfinite(bound) else 0.0
