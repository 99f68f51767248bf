"""What a converter can know of its operands and of its node before the model runs."""

from collections.abc import Callable
from functools import partial

from tvm import relax, tirx
from tvm.ir import Expr, GenericConst, Type
from tvm.relax.frontend.onnx.onnx_frontend import get_constant

from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, Parameters
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.errors import ModelError


def require_values(operand: Expr | None, params: Parameters, what: str) -> Array:
    """Return the values of an operand; raises `ModelError` with `what` if they are computed."""
    found = read_values(operand, params)
    if found is None:
        raise ModelError(f"{what} is not constant")
    return found


def read_values(operand: Expr | None, params: Parameters) -> Array | None:
    """Return the values of an operand, None if they are computed or come from outside."""
    if operand is None:
        return None
    found = get_constant(operand, params)
    if isinstance(found, relax.ShapeExpr) and all(isinstance(d, tirx.IntImm) for d in found.values):
        found = relax.const([int(dim) for dim in found.values], "int64")
    if not isinstance(found, GenericConst):
        return None
    array: Array = found.value.numpy()
    return array


def make_constant(array: Array) -> GenericConst:
    """Return an array as a constant of its dtype; `relax.const` alone makes 32 bits of 64."""
    return relax.const(array, str(array.dtype))


def require_shape(operand: Expr, what: str) -> list[int]:
    """Return the shape of an operand; raises `ModelError` with `what` if it depends on data."""
    return require_type_shape(operand.ty, what)


def require_type_shape(kind: Type, what: str) -> list[int]:
    """Return the shape of a tensor's type; raises `ModelError` with `what` for any other."""
    found = read_extents(kind, what)
    if -1 in found:
        names = [
            str(variable.name)
            for dim in kind.shape.values
            for variable in tirx.analysis.undefined_vars(dim)
        ]
        wanted = " and ".join(dict.fromkeys(names))
        raise ModelError(f"{what} has an open size: write a number for {wanted} in the pipeline")
    return found


def read_extents(kind: Type, what: str) -> list[int]:
    """Return the shape of a tensor's type, -1 where a size is open.

    Raises `ModelError` with `what` for a shape that depends on data.
    """
    dims = getattr(getattr(kind, "shape", None), "values", None)
    if dims is None:
        raise ModelError(f"{what} has a shape that is not known before the model runs")
    return [int(dim) if isinstance(dim, tirx.IntImm) else -1 for dim in dims]


def is_fixed(kind: Type) -> bool:
    """Whether a tensor's type has a shape of numbers."""
    dims = getattr(getattr(kind, "shape", None), "values", None)
    return dims is not None and all(isinstance(dim, tirx.IntImm) for dim in dims)


def decode_text(value: bytes | str) -> str:
    """Return an attribute that is a word."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def read_node_name(attr: Attributes) -> str:
    """Return the name of the node whose attributes TVM gives."""
    return str(attr["tvm_custom"]["name"])


def quote_node_name(attr: Attributes) -> str:
    """Return the name of the node as a message has it."""
    return repr(read_node_name(attr))


def require_constant(kind: str, operand: Expr, attr: Attributes, params: Parameters) -> Array:
    """Return an operand that decides a shape; raises `ModelError` if it is computed."""
    found = read_values(operand, params)
    if found is None:
        raise ModelError(
            f"the shape of what {kind} {quote_node_name(attr)} returns depends on what the model "
            "is given; shapes have to be known before the model runs"
        )
    return found


def make_scalar_factory(data: Expr) -> Callable[[float], GenericConst]:
    """Return a function that makes constants of the dtype of some data."""
    return partial(relax.const, dtype=str(data.ty.dtype))
