"""Transpose an image before it is enlarged, instead of the result.

    large = resize2d(image, [257, 257], "NHWC")         small = permute_dims(image, [0, 3, 1, 2])
    y = permute_dims(large, [0, 3, 1, 2])         ->    y = resize2d(small, [257, 257], "NCHW")

If nothing else reads the large result, the small image is transposed instead of it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import tvm
from tvm import relax

from autopipe.compiler.graph.calls import graph_functions
from autopipe.compiler.graph.literals import count_elements
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls
from autopipe.compiler.graph.split_resize import RESIZE

_TO_NCHW: Final = [0, 3, 1, 2]


def transpose_before_resize(module: tvm.IRModule) -> tvm.IRModule:
    """Move transposes after enlarging resizes before them."""
    reads: Counter[str] = Counter()
    for _, function in graph_functions(module):
        relax.analysis.post_order_visit(function.body, partial(_count_reads, reads))
    return rewrite_calls(partial(_move_transpose, reads), module)


def _count_reads(reads: Counter[str], node: relax.Expr) -> None:
    """Count the readers of variables by name; variables of one name count together."""
    parts: Sequence[relax.Expr] = node.args if isinstance(node, relax.Call) else ()
    parts = node.fields if isinstance(node, relax.Tuple) else parts
    parts = [node.body] if isinstance(node, relax.SeqExpr) else parts
    reads.update(part.name for part in parts if isinstance(part, relax.Var))


def _move_transpose(reads: Mapping[str, int], site: CallSite) -> relax.Expr:
    call = site.call
    if site.op != "relax.permute_dims":
        return call
    source = site.original.args[0]
    if not isinstance(source, relax.Var) or reads[source.name] != 1:
        return call
    order = [int(axis) for axis in call.attrs.axes or ()]
    resize = site.find_producer(call.args[0], RESIZE)
    if resize is None or order != _TO_NCHW:
        return call
    attrs, (data, size) = resize.attrs, resize.args
    if str(attrs.layout) != "NHWC" or count_elements(data) >= count_elements(resize):
        return call
    return relax.op.image.resize2d(
        site.emit(relax.op.permute_dims(data, order)), size, list(attrs.roi), "NCHW",
        str(attrs.method), str(attrs.coordinate_transformation_mode),
        str(attrs.rounding_method), float(attrs.cubic_alpha), int(attrs.cubic_exclude),
        float(attrs.extrapolation_value), str(resize.ty.dtype),
    )  # fmt: skip
