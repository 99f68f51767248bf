"""Constant, ConstantOfShape, EyeLike and Range: tensors that depend on no elements."""

from typing import Final

import numpy as np
from onnx.numpy_helper import to_array
from tvm import relax, te, tirx
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    ExactPart,
    advise_on_sizes,
    as_int64,
    as_integer,
    is_open,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import is_number
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError


def convert_constant(site: NodeSite) -> Expr:
    """Convert Constant; an empty one becomes a kernel, as TVM's runtime loads no empty tensors."""
    constant = site.convert_by_tvm()
    array = constant.value.numpy()
    if array.size:
        return constant
    number = tirx.const(0, str(array.dtype))

    def nothing(_: te.Tensor) -> te.Tensor:
        return te.compute(array.shape, lambda *_: number, name="nothing")

    source = next(value for value in site.params[0].values() if isinstance(value, relax.Var))
    return site.bb.emit_te(nothing, source, primfunc_name_hint="nothing")


def convert_constant_of_shape(site: NodeSite) -> Expr:
    """Convert ConstantOfShape; for rank 0 it is a constant, since TVM's operator needs a shape."""
    value = to_array(site.attr["value"]) if "value" in site.attr else np.zeros(1, "float32")
    number, sizes = operand_facts.make_constant(value.reshape(())), site.read_values(0)
    if sizes is not None and not sizes.size:
        return number
    if isinstance(site.inputs[0], GenericConst) or not site.numbers or site.numbers[0] is None:
        return site.convert_by_tvm()
    return relax.op.full(to_shape(site.numbers[0]), number, str(number.ty.dtype))


def convert_eye_like(site: NodeSite) -> Expr:
    """Convert EyeLike with the dtype of its attribute."""
    if "dtype" not in site.attr:
        return site.convert_by_tvm()
    rows, columns = site.inputs[0].ty.shape.values
    dtype = onnx_frontend.get_type(site.attr["dtype"])
    return relax.op.eye(rows, columns, site.attr.get("k", 0), dtype)


def _count_between_known_numbers(site: NodeSite) -> Expr | None:
    """Convert Range with integer start, limit and step known as sizes; None otherwise."""
    range_parts = [one.reshape(-1)[0] for one in site.numbers[:3] if one is not None]
    if len(range_parts) < len(site.numbers[:3]):
        return None
    start, limit, step = range_parts
    dtype = str(site.inputs[0].ty.dtype)
    if dtype.startswith("float"):
        parts = (start, limit, step)
        if not all(isinstance(part, ExactPart) and part.over == 1 for part in parts):
            return None
        start, limit, step = (part.number for part in parts)
    if not is_open((start, limit, step)):
        return None
    if not isinstance(step, int) or step == 0:
        raise ModelError(
            f"{site.label} has a dynamic step; {advise_on_sizes((start, limit, step))}"
        )
    span = limit - start if step > 0 else start - limit
    count = site.extents.count_steps(span, abs(step))
    places: Expr = relax.op.arange(as_integer(0), as_int64(count), as_integer(1), "int64")
    if step != 1:
        places *= relax.const(step, "int64")
    if not is_number(start, 0):
        first = site.inputs[0]
        places += first if dtype == "int64" else relax.op.astype(first, "int64")
    places = site.bb.emit(places)
    return places if dtype == "int64" else relax.op.astype(places, dtype)


def convert_dynamic_range(site: NodeSite) -> Expr | None:
    """Convert Range with computed start, limit or step."""
    bb = site.bb
    if all(one is not None for one in site.numbers[:3]):
        return _count_between_known_numbers(site)
    start, limit, step = (bb.emit(relax.op.reshape(one, [1])) for one in site.inputs[:3])
    dtype = str(start.ty.dtype)
    if dtype.startswith("float"):
        steps = relax.op.ceil(relax.op.divide(limit - start, step))
    else:  # -(-a // b) is a / b, rounded up
        steps = -relax.op.floor_divide(-(limit - start), step)
    count = relax.op.maximum(relax.op.astype(steps, "int64"), relax.const([0], "int64"))
    count = bb.emit(count)
    (length,) = site.extents.read(bb, count, site.name)

    def compute(start: te.Tensor, step: te.Tensor, length: Expr) -> te.Tensor:
        return te.compute(
            [length], lambda at: start[0] + tirx.Cast(dtype, at) * step[0], name="range"
        )

    return bb.emit_te(compute, start, step, length, primfunc_name_hint="range")


OPERATORS: Final = (
    Operator(name="Constant", since=25, converter=convert_constant, traits=Trait.EXACT_SPECIALS),
    Operator(
        name="ConstantOfShape",
        since=25,
        converter=convert_constant_of_shape,
        deciding=(0,),
        read_sizes=(0,),
        traits=Trait.FOLDABLE,
    ),
    Operator(name="EyeLike", since=22, converter=convert_eye_like, traits=Trait.FOLDABLE),
    Operator(
        name="Range",
        since=27,
        convert_dynamic=convert_dynamic_range,
        steering=(1, 2),
        deciding=(0, 1, 2),
        traits=Trait.FOLDABLE,
    ),
)
