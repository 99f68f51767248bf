"""Tasks around one matrix product, lowered as the pipeline lowers them."""

import tvm
from tvm import relax
from tvm.relax import op

from autopipe.compiler import lowering
from autopipe.compiler.labels.op_info import annotate_workload
from autopipe.compiler.tasks import extract_tasks
from tests.schedules.tasks import TARGET


def task_of(make, *shapes, dtype="float32"):
    """Return the heaviest task of a function of tensors, and its module."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(builder.emit, *params))
        builder.emit_func_output(out)
    tasks, modules = extract_tasks(lowering.lower(builder.get(), TARGET))
    heaviest = max(tasks, key=lambda task: task.flops)
    return heaviest, annotate_workload(modules[heaviest.workload], heaviest.info)


def product(emit, left, right):
    return emit(op.matmul(left, right))


def dense(emit, data, weight, bias, residual):
    total = emit(op.nn.relu(emit(op.add(emit(op.matmul(data, weight)), bias))))
    return emit(op.add(total, residual))


def pointwise(emit, data, kernel, bias, **attributes):
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    total = emit(op.nn.conv2d(data, kernel, **layouts, **attributes))
    return emit(op.nn.relu(emit(op.add(total, bias))))


def transposed(left, right):
    """Return the function of a product of transposed operands, without op information."""
    return tvm.topi.matmul(left, right, transp_a=True, transp_b=True)
