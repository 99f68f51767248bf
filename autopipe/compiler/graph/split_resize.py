"""Split the enlargement of an image into one resize per axis.

TVM computes the four neighbours of each pixel, and their weights, from floats. Neighbours within a
row are the same for all rows of the result between the same two rows of the image, and so are their
weighted sums. So rows are resized first, and then pairs of rows are interpolated. Both have the
resized axis outermost, so that neighbours are computed once per vector: the image is transposed for
it, and back. The sums are the same, in the same order.

Example: 65 x 65 pixels of 21 channels to 257 x 257, in NCHW.

    columns[x, c, y] = image[c, y, x]
    wide[x, c, y] = lerp(columns[left(x), c, y], columns[right(x), c, y])     # 257 x 21 x 65
    rows[c, y, x] = wide[x, c, y]
    large[c, y, x] = lerp(rows[c, upper(y), x], rows[c, lower(y), x])         # 21 x 257 x 257

In NHWC the channels form vectors already, and TVM's form stays.
"""

import math
from typing import Final

import tvm
from tvm import relax, te, topi

from autopipe.compiler.graph.literals import read_static_shape

RESIZE: Final = "relax.image.resize2d"
_EXACT: Final = "asymmetric"
"""The mode for which TVM divides integers, in two dimensions only."""


def legalize_resize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize a resize, split by axis if the image becomes larger."""
    axes = _find_target_size(call)
    if axes is None:
        plain: relax.Expr = tvm.ir.Op.get(RESIZE).get_attr("FLegalize")(builder, call)
        return plain
    rows, columns = axes
    transposed_image = _emit_transpose(builder, call.args[0], (3, 0, 1, 2))
    wide = builder.emit(_call_resize(builder, transposed_image, 0, columns, call.attrs))
    return _call_resize(builder, _emit_transpose(builder, wide, (1, 2, 3, 0)), 2, rows, call.attrs)


def _emit_transpose(
    builder: relax.BlockBuilder, data: relax.Expr, order: tuple[int, ...]
) -> relax.Expr:
    return builder.emit(
        builder.call_te(topi.transpose, data, order, primfunc_name_hint="transpose")
    )


def _call_resize(
    builder: relax.BlockBuilder,
    data: relax.Expr,
    axis: int,
    size: int,
    attrs: tvm.ir.Attrs,
) -> relax.Expr:
    return builder.call_te(_resize_axis, data, axis, size, attrs, primfunc_name_hint="resize1d")


def _find_target_size(call: relax.Call) -> tuple[int, int] | None:
    """Return rows and columns of the result; None to leave the resize to TVM."""
    attrs, before, after = call.attrs, read_static_shape(call.args[0]), read_static_shape(call)
    if before is None or after is None or str(attrs.layout) != "NCHW":
        return None
    larger = after[2] > before[2] and after[3] != before[3]
    exact = str(attrs.coordinate_transformation_mode) == _EXACT
    linear = str(attrs.method) == "linear" and str(call.ty.dtype).startswith("float")
    nearest = str(attrs.method) == "nearest_neighbor" and not exact
    return (after[2], after[3]) if larger and (linear or nearest) else None


def _resize_axis(data: te.Tensor, axis: int, size: int, attrs: tvm.ir.Attrs) -> te.Tensor:
    """Resize along one axis; the axes before it and after it are collapsed."""
    shape = [int(extent) for extent in data.shape]
    flat = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
    resized_rows = topi.image.resize1d(
        topi.reshape(data, flat), list(attrs.roi), [size], "NWC", str(attrs.method),
        str(attrs.coordinate_transformation_mode), str(attrs.rounding_method),
    )  # fmt: skip
    result: te.Tensor = topi.reshape(resized_rows, [*shape[:axis], size, *shape[axis + 1 :]])
    return result
