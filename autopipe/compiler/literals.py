"""What is part of Relax code as plain values: attributes, shapes, small constants."""

from typing import Any, Final

import tvm
from tvm import relax

from autopipe.op_info import Literal
from autopipe.tensor import Tensor

_IMMEDIATE: Final = (tvm.tirx.IntImm, tvm.tirx.FloatImm, tvm.ir.StringImm)

_SMALL: Final = 64
"""Elements of a constant that are still worth telling."""


def literal(value: relax.Expr) -> Literal:
    """Return an argument that is no variable; a large constant without its value."""
    if not isinstance(value, tvm.ir.GenericConst):
        return Literal(value=plain(value))
    array = value.value.numpy()
    told = array.tolist() if array.size <= _SMALL else None
    return Literal(value=told, dtype=str(value.value.dtype))


def attributes(attrs: Any) -> dict[str, Any]:  # noqa: ANN401 - TVM's attribute classes share no type
    """Return the attributes of an op as JSON values."""
    if attrs is None:
        return {}
    fields = type(attrs).__tvm_ffi_type_info__.fields
    return {field.name: plain(getattr(attrs, field.name)) for field in fields}


def tensors(kind: Any) -> tuple[Tensor, ...]:  # noqa: ANN401 - TVM's types share none
    """Return the tensors of a Relax type, those of a tuple one after the other."""
    if isinstance(kind, relax.TupleType):
        return tuple(found for field in kind.fields for found in tensors(field))
    if not isinstance(kind, relax.TensorType):
        return ()
    known = isinstance(kind.shape, relax.ShapeExpr)
    extents = kind.shape.values if known else ()
    shape = tuple(int(e) if isinstance(e, tvm.tirx.IntImm) else -1 for e in extents)
    return (Tensor(shape=shape, dtype=str(kind.dtype)),)


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever an attribute holds, as JSON
    """Return a JSON value."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, _IMMEDIATE):
        return plain(value.value)
    if isinstance(value, relax.ShapeExpr | relax.Tuple):
        return [plain(each) for each in _parts(value)]
    if hasattr(value, "__len__") and hasattr(value, "__getitem__") and not hasattr(value, "items"):
        return [plain(item) for item in value]
    return str(value)


def _parts(value: relax.ShapeExpr | relax.Tuple) -> Any:  # noqa: ANN401 - TVM's arrays
    return value.values if isinstance(value, relax.ShapeExpr) else value.fields
