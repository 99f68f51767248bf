"""Estimates the cost of a step of a reduction, and decides which steps may be in one vector.

Example: a step of the sum of x[i, k] over k loads and adds. Neighbours along k are contiguous, so
some of them fill a vector; those along i have the stride of a row.
"""

import tvm
from tvm.ir import TensorLoad

from autopipe.compiler.loops.count_operations import count_arithmetic
from autopipe.schedules.analysis.blocks import element_bits
from autopipe.schedules.analysis.expressions import flat_index, replace_variables
from autopipe.schedules.analysis.joining import find_join
from autopipe.schedules.analysis.reduction import Reduction
from autopipe.schedules.analysis.usual_stride import find_axis_stride, find_stride


def find_longest_stride(reduction: Reduction) -> int | None:
    """Return the longest stride along the last axis between borders; None if it is not constant."""
    if not reduction.axes:
        return None
    strides = [find_axis_stride(load, reduction.axes[-1]) for load in reduction.loads]
    constant_strides = [stride for stride in strides if stride is not None]
    return max(constant_strides, default=0) if len(constant_strides) == len(strides) else None


def _find_stride_along(reduction: Reduction, variable: tvm.ir.Var) -> int | None:
    """Return the longest stride of all loads along a variable; None if one is not constant."""
    strides = [
        find_stride(flat_index(load.source, load.indices), variable) for load in reduction.loads
    ]
    constant_strides = [abs(stride) for stride in strides if stride is not None]
    return max(constant_strides, default=0) if len(constant_strides) == len(strides) else None


def find_vector_step_bits(reduction: Reduction) -> int:
    """Return `together` of `ReducedOutputs`."""
    stores = reduction.reducer.stores
    if len(stores) > 1 or str(stores[0].buffer.ty.dtype) != "bool" or not reduction.constant:
        return 0
    if _find_stride_along(reduction, reduction.sums[-1]) not in {0, 1}:
        return 0
    return (
        max(element_bits(load.source.ty.dtype) for load in reduction.loads)
        if reduction.loads
        else 0
    )


def count_joint_steps(reduction: Reduction) -> int:
    """Return `joint_steps` of `ReducedOutputs`."""
    last = reduction.steps[-1] if reduction.steps else 0
    dtypes = {str(store.buffer.ty.dtype) for store in reduction.reducer.stores}
    if not isinstance(last, int) or "bool" in dtypes or reduction.reducer.branches():
        return 0
    if _find_stride_along(reduction, reduction.sums[-1]) not in {0, 1}:
        return 0
    return last if find_join(reduction.reducer, reduction.sums) else 0


def count_step_operations(reduction: Reduction) -> int:
    """Count the loads and operations of a step, without those of indices."""

    def named(load: TensorLoad) -> tvm.ir.Var:
        return tvm.tirx.Var("loaded", load.ty)

    reducer = reduction.reducer
    bare = (replace_variables(value, [], named) for value in reducer.values)
    return len(reduction.loads) + sum(map(count_arithmetic, bare))
