"""Read plain values from Relax code: attributes, shapes and small constants."""

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
"""Elements of the largest constant that is recorded with its values."""


def read_literal(value: relax.Expr) -> Literal:
    """Convert an argument other than a tensor operand to a literal: a scalar, or known values.

    The values are omitted for a large constant, and for a variable of which only the shape matters.
    """
    if isinstance(value, tvm.ir.GenericConst):
        array = value.value.numpy()
        items = to_json(array.tolist()) if array.size <= _SMALL else None
        return Literal(value=items, dtype=str(value.value.dtype), shape=array.shape)
    if isinstance(value, relax.Var) and isinstance(value.ty, relax.TensorType):
        (tensor,) = list_tensors(value.ty)
        return Literal(value=None, dtype=tensor.dtype, shape=tensor.shape)
    dtype = str(value.ty) if isinstance(value, _NUMBER) else None
    return Literal(value=to_json(value), dtype=dtype)


def read_attributes(attrs: tvm.ir.Attrs | None) -> dict[str, Any]:
    """Convert the attributes of an op to JSON values."""
    if attrs is None:
        return {}
    fields = attrs.__class__.__tvm_ffi_type_info__.fields
    return {field.name: to_json(getattr(attrs, field.name)) for field in fields}


def list_tensors(kind: tvm.ir.Type) -> tuple[Tensor, ...]:
    """List the tensors of a Relax type, with tuples flattened.

    Where only the rank is known, each size is -1.
    """
    if isinstance(kind, relax.TupleType):
        return tuple(tensor for field in kind.fields for tensor in list_tensors(field))
    if not isinstance(kind, relax.TensorType):
        return ()
    return (Tensor(shape=read_shape(kind), dtype=str(kind.dtype)),)


def read_shape(kind: relax.TensorType) -> tuple[int, ...]:
    """Return the shape of a tensor, -1 for dynamic dimensions."""
    shape = kind.shape
    if not isinstance(shape, relax.ShapeExpr):
        return (-1,) * int(kind.ndim)
    return read_sizes(shape.values)


def read_static_shape(value: relax.Expr) -> tuple[int, ...] | None:
    """Return the shape of a tensor; None if it is dynamic, or if the value is no tensor."""
    kind = value.ty
    shape = read_shape(kind) if isinstance(kind, relax.TensorType) else (-1,)
    return None if -1 in shape else shape


def read_rank(kind: tvm.ir.Type) -> int:
    """Return the rank of the type of a tensor; -1 if it is unknown, or of another type."""
    return int(kind.ndim) if isinstance(kind, relax.TensorType) else -1


def has_static_sizes(kind: tvm.ir.Type) -> bool:
    """Tell whether a type is that of a tensor of static shape, or of a tuple of such tensors."""
    if isinstance(kind, relax.TupleType):
        return all(map(has_static_sizes, kind.fields))
    shape = kind.shape if isinstance(kind, relax.TensorType) else None
    return isinstance(shape, relax.ShapeExpr) and -1 not in read_sizes(shape.values)


def is_static(value: tvm.ir.Expr) -> bool:
    """Tell whether a value is a static shape, of static shape, or a number."""
    if isinstance(value, relax.ShapeExpr):
        return -1 not in read_sizes(value.values)
    if isinstance(value.ty, relax.TensorType | relax.TupleType):
        return has_static_sizes(value.ty)
    return not isinstance(value, relax.Var)


def count_elements(value: relax.Expr) -> int:
    """Return the number of elements of a tensor, or 0 if its shape is dynamic."""
    shape = read_static_shape(value)
    return 0 if shape is None else math.prod(shape)


def count_bytes(kind: relax.TensorType) -> int:
    """Return the number of bytes of a tensor of static shape."""
    bits = tvm.DataType(str(kind.dtype)).bits
    return math.prod(map(int, kind.shape.values)) * ((bits + 7) // 8)


def describe_buffer(buffer: tvm.tirx.Buffer) -> Tensor:
    """Describe a buffer as a tensor."""
    return Tensor(shape=read_sizes(buffer.shape), dtype=str(buffer.dtype))


def read_sizes(extents: Iterable[object]) -> tuple[int, ...]:
    """Convert extents to integers; -1 for symbolic ones."""
    return tuple(int(e.value) if isinstance(e, tvm.tirx.IntImm) else -1 for e in extents)


def to_json(value: Any) -> JsonValue:  # noqa: ANN401 - whatever an attribute holds
    """Convert a value of TVM to a JSON value."""
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


def read_permutation(transpose: relax.Call) -> tuple[int, ...]:
    """Return the operand's axis of each axis of a `permute_dims`; by default they are reversed."""
    rank, axes = int(transpose.args[0].ty.ndim), transpose.attrs.axes
    return tuple(reversed(range(rank))) if axes is None else tuple(int(a) % rank for a in axes)
