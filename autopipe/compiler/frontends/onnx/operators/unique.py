"""Unique: the distinct elements."""

from typing import Final

from tvm import relax, te, tirx
from tvm.ir import Expr
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    as_int64,
    multiply_sizes,
    to_shape,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.kernels import (
    LoopBuffer,
    build_extern,
    find_nonzero_places,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.operators.topk import AS_SORTED
from autopipe.errors import ModelError


def convert_unique(site: NodeSite) -> Expr:
    """Convert Unique of all elements: sort, then keep the first of each run of equal elements."""
    extents, bb, data, label = site.extents, site.bb, site.inputs[0], site.label
    sizes = extents.shape(data, label)
    if "axis" in site.attr and len(sizes) > 1:
        raise ModelError(f"{label} along an axis of several is not supported")
    dtype, size = str(data.ty.dtype), extents.simple(multiply_sizes(sizes))
    flat = bb.emit(relax.op.reshape(data, to_shape([size])))
    flat = bb.emit(relax.op.astype(flat, AS_SORTED[dtype])) if dtype in AS_SORTED else flat
    order = bb.emit(relax.op.argsort(flat, axis=0, descending=False, dtype="int64"))
    sorted_elements = bb.emit(relax.op.take(flat, order, 0))

    def first(sorted_elements: te.Tensor) -> te.Tensor:
        def at(place: Expr) -> Expr:
            before = sorted_elements[tirx.max(place - 1, as_int64(0))]
            return tirx.Cast("int64", tirx.any(place == 0, sorted_elements[place] != before))

        return te.compute(sorted_elements.shape, at, name="first")

    news = bb.emit_te(first, sorted_elements, primfunc_name_hint="first")
    starts = find_nonzero_places(site, news, [size])
    return _group_elements(site, (flat, order, news, starts, dtype))


def _group_elements(site: NodeSite, parts: tuple[Expr, Expr, Expr, Expr, str]) -> Expr:
    """Return the outputs of Unique: elements, first indices, inverse indices, counts."""
    bb, (flat, order, news, starts, dtype) = site.bb, parts
    firsts = bb.emit(relax.op.take(order, starts, 0))
    size = site.extents.shape(flat, "the input")[0]

    def counts(starts: te.Tensor, size: Expr) -> te.Tensor:
        def at(group: Expr) -> Expr:
            last = starts.shape[0] - 1
            after = tirx.if_then_else(group < last, starts[tirx.min(group + 1, last)], size)
            return after - starts[group]

        return te.compute(starts.shape, at, name="counts")

    numbers = bb.emit_te(counts, starts, as_int64(size), primfunc_name_hint="counts")
    ends = bb.emit(relax.op.cumsum(news, axis=0, dtype="int64"))

    def groups(order: te.Tensor, ends: te.Tensor) -> te.Tensor:
        def write(order: LoopBuffer, ends: LoopBuffer, out: LoopBuffer) -> None:
            with T.serial(as_int64(0), order.shape[0]) as at:
                out[order[at]] = ends[at] - as_int64(1)

        return build_extern(write, [order, ends], [(order.shape, "int64")], "groups")[0]

    inverse = bb.emit_te(groups, order, ends, primfunc_name_hint="groups")
    if not site.attr.get("sorted", 1):
        ranks = bb.emit(relax.op.argsort(firsts, axis=0, descending=False, dtype="int64"))
        places = bb.emit(relax.op.argsort(ranks, axis=0, descending=False, dtype="int64"))
        firsts, numbers = (bb.emit(relax.op.take(one, ranks, 0)) for one in (firsts, numbers))
        inverse = bb.emit(relax.op.take(places, inverse, 0))
    values = bb.emit(relax.op.take(flat, firsts, 0))
    values = bb.emit(relax.op.astype(values, dtype)) if str(values.ty.dtype) != dtype else values
    outputs = [values, firsts, inverse, numbers][: site.output_count]
    return relax.Tuple(outputs) if len(outputs) > 1 else outputs[0]


OPERATORS: Final = (
    Operator(
        name="Unique",
        since=28,
        converter=convert_unique,
        deciding=(0,),
        traits=Trait.FOLDABLE | Trait.CHOOSES_ROWS,
    ),
)
