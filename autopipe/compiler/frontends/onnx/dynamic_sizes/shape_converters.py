"""Common parts of converters of nodes with dynamic shapes."""

from collections.abc import Callable, Sequence

from tvm import relax, te
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder, Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64, as_integer, to_shape


def is_number(size: Size, number: int) -> bool:
    """Whether a size is this constant."""
    return isinstance(size, int) and size == number


def emit_kernel(
    bb: BlockBuilder,
    compute: Callable[..., te.Tensor],
    data: Expr,
    sizes: Sequence[Size],
    hint: str,
) -> Expr:
    """Emit a kernel of data and sizes; the PrimFunc can use only these sizes."""
    return bb.emit_te(compute, data, [as_int64(size) for size in sizes], primfunc_name_hint=hint)


def take_part(  # noqa: PLR0913
    site: NodeSite, data: Expr, axis: int, first: Size, count: Size, *, step: int = 1
) -> Expr:
    """Return `count` elements of an axis from `first` on."""
    bb, end = site.bb, site.extents.simple(first + count * step)
    if step > 0:
        return bb.emit(
            relax.op.strided_slice(
                data,
                [axis],
                [as_int64(first)],
                [as_int64(end)],
                [as_integer(step)],
                assume_inbound=True,
            )
        )
    places = bb.emit(relax.op.arange(as_integer(0), as_int64(count), as_integer(1), "int64"))
    places = bb.emit(relax.op.multiply(places, relax.const(step, "int64")))
    start = bb.emit(relax.op.shape_to_tensor(to_shape([first])))
    places = bb.emit(relax.op.add(places, start))
    return bb.emit(relax.op.take(data, places, axis))
