"""Indices of nonzero elements, a data-dependent number of them."""

from collections.abc import Sequence

from tvm import relax, te
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.converter_types import Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import kernels
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    as_int64,
    multiply_sizes,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import emit_kernel


def find_nonzero_places(site: NodeSite, data: Expr, sizes: Sequence[Size]) -> Expr:
    """Compute the flat indices of nonzero elements, int64 [count]."""
    bb, size = site.bb, site.extents.simple(multiply_sizes(sizes))
    flat = bb.emit(relax.op.reshape(data, to_shape([size])))
    counts = emit_kernel(
        bb, lambda flat, size: kernels.count_nonzero(flat, size[0]), flat, [size], "counted"
    )
    ends, count = sum_counts(site, counts, size)

    def compute(flat: te.Tensor, ends: te.Tensor, size: Expr, count: Expr) -> te.Tensor:
        return kernels.list_nonzero_places(flat, ends, size, count)

    return bb.emit_te(compute, flat, ends, as_int64(size), count, primfunc_name_hint="placed")


def sum_counts(site: NodeSite, counts: Expr, most: Size) -> tuple[Expr, Expr]:
    """Return (cumulative counts, total count as a new size of at most `most`)."""
    bb, extents = site.bb, site.extents
    ends = bb.emit(relax.op.cumsum(counts, axis=0, dtype="int64"))
    number = bb.emit_te(kernels.sum_counts, counts, primfunc_name_hint="number")
    (total,) = extents.read(bb, number, site.name, extents.bounds(most)[1])
    return ends, total
