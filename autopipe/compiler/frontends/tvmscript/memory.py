"""Bound the memory of a model in TVMScript."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.s_tir import SBlock

from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.frontends import bounds
from autopipe.compiler.frontends.bounds import BOUNDS, Bounds, Computation
from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.graph.calls import find_callee, list_bindings


def check_model_memory(
    module: tvm.IRModule,
    inputs: Sequence[Value],
    weights: Sequence[Value],
    limits: Bounds = BOUNDS,
) -> None:
    """Raise `ModelError`, with the name of a value, if tensors exceed the memory bounds."""
    weight_bytes = {value.name: _count_bytes(value.shape, value.dtype) for value in weights}
    bounds.check_weights(weight_bytes, limits)
    input_bytes = {value.name: _count_bytes(value.shape, value.dtype) for value in inputs}
    main = module["main"]
    bounds.check_memory(
        list(_list_computations(module, main, set(input_bytes))),
        input_bytes=input_bytes,
        weight_bytes=sum(weight_bytes.values()),
        output_names=_list_variable_names(main.body.body),
        bounds=limits,
    )


def _list_computations(
    module: tvm.IRModule, main: relax.Function, varying: set[str]
) -> Iterator[Computation]:  # names are unique in a function that was parsed
    for binding in list_bindings(main):
        name = str(binding.var.name)
        read = _list_variable_names(binding.value)
        constant = varying.isdisjoint(read)
        if not constant:
            varying.add(name)
        sizes = {name: _count_type_bytes(binding.var.ty)}
        callee = find_callee(binding.value)
        if callee is not None:
            sizes[f"{name}/{callee}"] = _count_buffer_bytes(module[callee])
        yield Computation(f"value {name!r}", tuple(read), sizes, constant)


def _list_variable_names(value: relax.Expr) -> set[str]:
    return {str(variable.name) for variable in find_nodes(value, relax.Var)}


def _count_buffer_bytes(function: tirx.PrimFunc) -> int:
    """Return the bytes of the buffers that a function allocates."""
    blocks = find_nodes(function.body, SBlock)
    buffers = (buffer for block in blocks for buffer in block.alloc_buffers)
    return sum(_count_bytes(buffer.shape, str(buffer.dtype)) for buffer in buffers)


def _count_type_bytes(kind: object) -> int:
    if isinstance(kind, relax.TupleType):
        return sum(map(_count_type_bytes, kind.fields))
    values = getattr(getattr(kind, "shape", None), "values", None)
    return 0 if values is None else _count_bytes(values, str(getattr(kind, "dtype", "float32")))


def _count_bytes(shape: Mapping[int, object] | Sequence[object], dtype: str) -> int:
    """Return the bytes of a tensor, or 0 if a size is unknown."""
    if not all(isinstance(extent, int | tirx.IntImm) for extent in shape):
        return 0
    try:
        unit = np.dtype(dtype).itemsize
    except TypeError:
        unit = 4
    return unit * math.prod(int(extent) for extent in shape)  # type: ignore[call-overload]
