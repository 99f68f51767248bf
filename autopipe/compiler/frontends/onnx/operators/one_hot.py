"""OneHot as ONNX defines it, of a constant or computed depth."""

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.places import count_from_end
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    as_int64,
    as_integer,
    as_scalar_array,
    is_open,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def convert_one_hot(site: NodeSite) -> Expr:
    """Convert OneHot in the dtype of its values, with a depth of rank 0 or 1."""
    bb, (places, depth, values), attr = site.bb, list(site.inputs), site.attr
    if not str(places.ty.dtype).startswith(("int", "uint")):
        places = bb.normalize(relax.op.astype(places, "int64"))
    # TVM's operator counts a negative axis from the end of the input, which has one axis less
    attr = {**attr, "axis": int(attr.get("axis", -1)) % (places.ty.ndim + 1)}
    if site.read_values(2) is None:
        return site.convert_by(_select_computed_values, [places, depth, values], attr)
    constant = onnx_frontend.get_constant(depth, site.params)
    if isinstance(constant, GenericConst):  # possibly of shape [1]
        depth = relax.const(constant.value.numpy().item(), "int64")
    result = bb.normalize(site.convert_by_tvm([places, depth, values], attr))
    dtype = values.ty.dtype
    return result if result.ty.dtype == dtype else relax.op.astype(result, dtype)


def _select_computed_values(site: NodeSite) -> Expr:
    """Convert OneHot with computed off and on values."""
    label = f"the depth of {site.label}"
    depth = int(site.require_values(1, label).item())
    row = operand_facts.make_constant(np.arange(depth, dtype="int64"))
    return compute_one_hot(site, relax.const(depth, "int64"), row)


def compute_one_hot(site: NodeSite, depth: Expr, row: Expr) -> Expr:
    """Compute OneHot: the second value at the index along a new axis, the first value elsewhere.

    `depth` is an int64 scalar, and `row` holds 0 to depth - 1. A negative index counts from the
    end; an index out of range gives the first value everywhere.
    """
    places = count_from_end(site.bb, site.inputs[0], depth)
    rank = places.ty.ndim + 1
    axis = int(site.attr.get("axis", -1)) % rank
    behind = list(range(1, rank - axis))
    row = relax.op.expand_dims(row, behind) if behind else row
    hot = relax.op.equal(relax.op.expand_dims(places, axis), row)
    off, on = (relax.op.take(site.inputs[2], relax.const(at, "int64"), 0) for at in range(2))
    return relax.op.where(hot, on, off)


def convert_dynamic_one_hot(site: NodeSite) -> Expr | None:
    """Convert OneHot of a dynamic depth."""
    bb = site.bb
    if site.numbers[1] is None or not is_open(site.numbers[1].reshape(-1)[:1]):
        return None
    depth = site.numbers[1].reshape(-1)[0]
    row = bb.emit(relax.op.arange(as_integer(0), as_int64(depth), as_integer(1), "int64"))
    number = site.extents.put(bb, as_scalar_array(depth), "int64")
    return compute_one_hot(site, number, row)


OPERATORS: Final = (
    Operator(
        name="OneHot",
        since=28,
        converter=convert_one_hot,
        convert_dynamic=convert_dynamic_one_hot,
        steering=(1, 2),
        deciding=(1,),
        read_sizes=(1,),
        traits=Trait.FOLDABLE,
    ),
)
