"""Reads plain values from Relax code: attributes, shapes and small constants."""

import math
from collections.abc import Iterable
from typing import Any, Final

import tvm
from pydantic import JsonValue
from tvm import relax

from autopipe.tasks.op_info import Literal
from autopipe.tasks.tensor import Tensor

_NUMBER: Final = (tvm.tirx.IntImm, tvm.tirx.FloatImm)
_IMMEDIATE: Final = (*_NUMBER, tvm.ir.StringImm)

_SMALL: Final = 64
"""Elements of a constant that are still worth telling."""


def read_literal(value: relax.Expr) -> Literal:
    """Return an argument that is not a tensor that the function reads: code, or known values.

    The values are left out for a large constant, and for a variable of which only the shape counts.
    """
    if isinstance(value, tvm.ir.GenericConst):
        array = value.value.numpy()
        told = to_json(array.tolist()) if array.size <= _SMALL else None
        return Literal(value=told, dtype=str(value.value.dtype), shape=array.shape)
    if isinstance(value, relax.Var) and isinstance(value.ty, relax.TensorType):
        (tensor,) = list_tensors(value.ty)
        return Literal(value=None, dtype=tensor.dtype, shape=tensor.shape)
    dtype = str(value.ty) if isinstance(value, _NUMBER) else None
    return Literal(value=to_json(value), dtype=dtype)


def read_attributes(attrs: tvm.ir.Attrs | None) -> dict[str, Any]:
    """Return the attributes of an op as JSON values."""
    if attrs is None:
        return {}
    fields = attrs.__class__.__tvm_ffi_type_info__.fields
    return {field.name: to_json(getattr(attrs, field.name)) for field in fields}


def list_tensors(kind: tvm.ir.Type) -> tuple[Tensor, ...]:
    """Return the tensors of a Relax type, those of a tuple one after the other.

    Where only the rank is known, each size is -1.
    """
    if isinstance(kind, relax.TupleType):
        return tuple(found for field in kind.fields for found in list_tensors(field))
    if not isinstance(kind, relax.TensorType):
        return ()
    return (Tensor(shape=_read_shape(kind), dtype=str(kind.dtype)),)


def _read_shape(kind: relax.TensorType) -> tuple[int, ...]:
    """Return the sizes of a tensor, -1 for each that is not known."""
    shape = kind.shape
    if not isinstance(shape, relax.ShapeExpr):
        return (-1,) * int(kind.ndim)
    return read_sizes(shape.values)


def read_static_shape(value: relax.Expr) -> tuple[int, ...] | None:
    """Return the sizes of a tensor. None if a size is not known, or if it is not a tensor."""
    kind = value.ty
    shape = _read_shape(kind) if isinstance(kind, relax.TensorType) else (-1,)
    return None if -1 in shape else shape


def describe_buffer(buffer: tvm.tirx.Buffer) -> Tensor:
    """Return the tensor that a buffer holds."""
    return Tensor(shape=read_sizes(buffer.shape), dtype=str(buffer.dtype))


def read_sizes(extents: Iterable[object]) -> tuple[int, ...]:
    """Return extents as numbers. A symbolic extent is -1."""
    return tuple(int(e.value) if isinstance(e, tvm.tirx.IntImm) else -1 for e in extents)


def to_json(value: Any) -> JsonValue:  # noqa: ANN401 - whatever an attribute holds
    """Return a value of TVM as a JSON value."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers; `float` takes the text
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, _IMMEDIATE):
        return to_json(value.value)
    if isinstance(value, relax.ShapeExpr):
        return [to_json(item) for item in value.values]
    if hasattr(value, "__len__") and hasattr(value, "__getitem__") and not hasattr(value, "items"):
        return [to_json(item) for item in value]
    return str(value)
