"""Softmax, LogSoftmax and Hardmax."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    as_int64,
    as_integer,
    is_open,
    to_shape,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_dynamic_hardmax(site: NodeSite) -> Expr | None:
    """Convert Hardmax along a dynamic axis."""
    bb = site.bb
    data = site.inputs[0]
    sizes = site.extents.shape(data, site.label)
    axis = int(site.attr.get("axis", -1)) % len(sizes)
    if not is_open(sizes[axis : axis + 1]):
        return None
    largest = bb.emit(relax.op.argmax(data, axis, keepdims=True))
    row = relax.op.arange(as_integer(0), as_int64(sizes[axis]), as_integer(1), "int64")
    shape = [size if at == axis else 1 for at, size in enumerate(sizes)]
    places = relax.op.reshape(row, to_shape(shape))
    return relax.op.astype(relax.op.equal(places, largest), data.ty.dtype)


OPERATORS: Final = (
    Operator(name="Hardmax", since=13, convert_dynamic=convert_dynamic_hardmax),
    Operator(name="LogSoftmax", since=13, traits=Trait.SINGULAR_AT_ZERO),
    Operator(name="Softmax", since=13, row_moments=rules.softmax, saturation_slope=1.0),
)
