"""Facts of a node's operands at import: constant values, shapes, names."""

from collections.abc import Callable
from functools import partial

from tvm import relax, tirx
from tvm.ir import Expr, GenericConst, Type
from tvm.relax.frontend.onnx.onnx_frontend import get_constant

from autopipe.compiler.frontends.onnx.conversion.converter_types import Parameters, Size
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.errors import ModelError


def read_values(operand: Expr | None, params: Parameters) -> Array | None:
    """Return the values of an operand, None if they are computed or a model input."""
    if operand is None:
        return None
    constant = get_constant(operand, params)
    if isinstance(constant, relax.ShapeExpr) and all(
        isinstance(d, tirx.IntImm) for d in constant.values
    ):
        constant = relax.const([int(dim) for dim in constant.values], "int64")
    if not isinstance(constant, GenericConst):
        return None
    array: Array = constant.value.numpy()
    return array


def make_constant(array: Array) -> GenericConst:
    """Create a constant with the array's dtype; `relax.const` alone converts 64 bits to 32."""
    return relax.const(array, str(array.dtype))


def require_shape(operand: Expr, label: str) -> list[int]:
    """Return the shape of an operand; raises `ModelError` with `label` if it is not static."""
    return require_type_shape(operand.ty, label)


def require_type_shape(kind: Type, label: str) -> list[int]:
    """Return the static shape of a type; raises `ModelError` with `label` if it has none."""
    shape = read_extents(kind, label)
    if -1 in shape:
        names = [
            str(variable.name)
            for dim in kind.shape.values
            for variable in tirx.analysis.undefined_vars(dim)
        ]
        joined_names = " and ".join(dict.fromkeys(names))
        raise ModelError(
            f"{label} has a dynamic size: write a number for {joined_names} in the pipeline"
        )
    return shape


def read_sizes(kind: Type) -> list[Size] | None:
    """Return the shape of a tensor's type, integers for static sizes; None if it is unknown."""
    dims = getattr(getattr(kind, "shape", None), "values", None)
    if dims is None:
        return None
    return [int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in dims]


def read_extents(kind: Type, label: str) -> list[int]:
    """Return the shape of a tensor's type, -1 for a dynamic dimension.

    Raises `ModelError` with `label` for an unknown shape.
    """
    sizes = read_sizes(kind)
    if sizes is None:
        raise ModelError(f"{label} has a shape that is not known before the model runs")
    return [size if isinstance(size, int) else -1 for size in sizes]


def is_fixed(kind: Type) -> bool:
    """Whether a tensor's type has a static shape."""
    sizes = read_sizes(kind)
    return sizes is not None and all(isinstance(size, int) for size in sizes)


def decode_text(value: bytes | str) -> str:
    """Return a string attribute as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def make_scalar_factory(data: Expr) -> Callable[[float], GenericConst]:
    """Return a factory of scalar constants with the dtype of some data."""
    return partial(relax.const, dtype=str(data.ty.dtype))
