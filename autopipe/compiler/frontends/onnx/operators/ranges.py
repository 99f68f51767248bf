"""Range: an arithmetic sequence."""

from typing import Final

from tvm import relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    ExactPart,
    advise_on_sizes,
    as_int64,
    as_integer,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import is_number
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError


def _count_between_known_numbers(site: NodeSite) -> Expr | None:
    """Convert Range with integer start, limit and step known as sizes; None otherwise."""
    extents, bb = site.extents, site.bb
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
    count = extents.count_steps(span, abs(step))
    places = bb.emit(relax.op.arange(as_integer(0), as_int64(count), as_integer(1), "int64"))
    if step != 1:
        places = bb.emit(relax.op.multiply(places, relax.const(step, "int64")))
    if not is_number(start, 0):
        first = site.inputs[0]
        first = first if dtype == "int64" else bb.emit(relax.op.astype(first, "int64"))
        places = bb.emit(relax.op.add(places, first))
    return places if dtype == "int64" else relax.op.astype(places, dtype)


def convert_dynamic_range(site: NodeSite) -> Expr | None:
    """Convert Range with computed start, limit or step."""
    bb = site.bb
    if all(one is not None for one in site.numbers[:3]):
        return _count_between_known_numbers(site)
    start, limit, step = (bb.emit(relax.op.reshape(one, [1])) for one in site.inputs[:3])
    dtype = str(start.ty.dtype)
    steps = bb.emit(relax.op.subtract(limit, start))
    if dtype.startswith("float"):
        steps = bb.emit(relax.op.ceil(bb.emit(relax.op.divide(steps, step))))
    else:  # -(-a // b) is a / b, rounded up
        back = bb.emit(relax.op.floor_divide(bb.emit(relax.op.negative(steps)), step))
        steps = bb.emit(relax.op.negative(back))
    count = bb.emit(relax.op.astype(steps, "int64"))
    count = bb.emit(relax.op.maximum(count, relax.const([0], "int64")))
    (length,) = site.extents.read(bb, count, site.name)

    def compute(start: te.Tensor, step: te.Tensor, length: Expr) -> te.Tensor:
        return te.compute(
            [length], lambda at: start[0] + tirx.Cast(dtype, at) * step[0], name="range"
        )

    return bb.emit_te(compute, start, step, length, primfunc_name_hint="range")


OPERATORS: Final = (
    Operator(
        name="Range",
        since=27,
        convert_dynamic=convert_dynamic_range,
        steering=(1, 2),
        deciding=(0, 1, 2),
        traits=Trait.FOLDABLE,
    ),
)
