"""NonMaxSuppression: boxes that do not overlap a box of higher score."""

from collections.abc import Sequence
from typing import Final

from tvm import relax, te, tirx
from tvm.ir import Expr
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64, multiply_sizes
from autopipe.compiler.frontends.onnx.dynamic_sizes.kernels import (
    LoopBuffer,
    build_extern,
    make_variable,
    sum_counts,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

_BOX: Final = "float32"
_Corners = tuple[Expr, Expr, Expr, Expr]
"""Minimum and maximum along one axis, then along the other."""


def convert_non_max_suppression(site: NodeSite) -> Expr:
    """Reject NonMaxSuppression in a static graph: TVM's converter pads the output."""
    raise ModelError(f"the size of what {site.label} finds depends on data")


def convert_dynamic_non_max_suppression(site: NodeSite) -> Expr | None:
    """Convert NonMaxSuppression with a data-dependent number of rows."""
    extents, bb, label = site.extents, site.bb, site.label
    boxes, scores = site.inputs[:2]
    most, overlap, least = (site.find_input(at) for at in (2, 3, 4))
    images, classes, count = extents.shape(scores, label)
    if any(str(one.ty.dtype) != "float32" for one in (boxes, scores)):
        raise ModelError(f"{label}: boxes and scores have to be float32")
    for size, extent in zip(extents.shape(boxes, label), (images, count, 4), strict=True):
        if not extents.equal(size, extent):
            raise ModelError(f"{label}: boxes and scores are not of the same images and boxes")
    order = bb.emit(relax.op.argsort(scores, axis=2, descending=True, dtype="int64"))
    single = [
        _make_single(bb, most, "int64", 0),
        _make_single(bb, overlap, "float32", 0.0),
        *([] if least is None else [_make_single(bb, least, "float32", 0.0)]),
    ]
    centered = bool(site.attr.get("center_point_box", 0))

    def pick(
        boxes: te.Tensor, scores: te.Tensor, order: te.Tensor, *limits: te.Tensor
    ) -> list[te.Tensor]:
        return pick_boxes(boxes, scores, order, limits, centered=centered)

    picks = bb.emit_te(pick, boxes, scores, order, *single, primfunc_name_hint="picked")
    indices, counts = (bb.emit(relax.TupleGetItem(picks, at)) for at in range(2))
    limit: int | None = 0
    if most is not None:
        limit = None if site.numbers[2] is None else int(site.numbers[2].reshape(-1)[0])
    of_class = count if limit is None else min(extents.bounds(count)[1], max(limit, 0))
    ends, total = sum_counts(site, counts, multiply_sizes([images, classes, of_class]))

    def listed(
        indices: te.Tensor, counts: te.Tensor, ends: te.Tensor, total: Expr, classes: Expr
    ) -> te.Tensor:
        return list_boxes(indices, counts, ends, classes, total)

    return bb.emit_te(
        listed, indices, counts, ends, total, as_int64(classes), primfunc_name_hint="listed"
    )


def _make_single(bb: BlockBuilder, value: Expr | None, dtype: str, default: float) -> Expr:
    """Reshape a number, or its default, to a tensor [1]."""
    if value is None:
        return relax.const([default], dtype)
    value = bb.emit(relax.op.reshape(value, [1]))
    return value if str(value.ty.dtype) == dtype else bb.emit(relax.op.astype(value, dtype))


def pick_boxes(
    boxes: te.Tensor,
    scores: te.Tensor,
    order: te.Tensor,
    limits: Sequence[te.Tensor],
    *,
    centered: bool,
) -> list[te.Tensor]:
    """Select boxes greedily by score, for each class of each image.

    Args:
        boxes: [images, boxes, 4] corners; with `centered` middle, width and height.
        scores: [images, classes, boxes].
        order: [images, classes, boxes], places of the scores from the best one down.
        limits: [1] each: boxes of a class, intersection over union, and the minimum score, if any.
        centered: Whether boxes have a middle.

    Returns [images * classes, boxes] int64, of which the first ones hold, and [images * classes].
    """
    images, classes, count = scores.shape
    jobs = images * classes

    def write(*buffers: LoopBuffer) -> None:
        *input_buffers, indices, counts = buffers
        boxes, scores, order, most, overlap, *floor = input_buffers
        with T.parallel(as_int64(0), jobs) as job:
            image, kind = tirx.floordiv(job, classes), tirx.floormod(job, classes)
            number, good = make_variable(), make_variable()
            number[0] = as_int64(0)
            with T.serial(as_int64(0), count) as rank:
                box = tirx.Cast("int64", order[image, kind, rank])
                eligible = number[0] < most[0]
                if floor:
                    eligible = tirx.all(eligible, scores[image, kind, box] > floor[0][0])
                with T.If(eligible), T.Then():
                    _mark_good_boxes(
                        good, (boxes, image, indices, job), number[0], box, overlap[0], centered
                    )
                    with T.If(good[0] == as_int64(1)), T.Then():
                        indices[job, number[0]] = box
                        number[0] = number[0] + as_int64(1)
            counts[job] = number[0]

    inputs = [boxes, scores, order, *limits]
    return build_extern(write, inputs, [([jobs, count], "int64"), ([jobs], "int64")], "picked")


def _mark_good_boxes(  # noqa: PLR0913, PLR0917 - each is a part of the loop
    good: LoopBuffer,
    picks: tuple[LoopBuffer, Expr, LoopBuffer, Expr],
    number: Expr,
    box: Expr,
    most: Expr,
    centered: bool,  # noqa: FBT001
) -> None:
    """Write loops that set `good` to 1 if a box overlaps none of the selected boxes, else to 0."""
    boxes, image, places, job = picks
    index = make_variable()
    index[0] = as_int64(0)
    good[0] = as_int64(1)
    with T.While(tirx.all(index[0] < number, good[0] == as_int64(1))):
        picked_corners = _find_corners(boxes, image, places[job, index[0]], centered=centered)
        corners = _find_corners(boxes, image, box, centered=centered)
        with T.If(_is_overlapping(picked_corners, corners, most)), T.Then():
            good[0] = as_int64(0)
        index[0] = index[0] + as_int64(1)


def list_boxes(
    indices: te.Tensor, counts: te.Tensor, ends: te.Tensor, classes: Expr, total: Expr
) -> te.Tensor:
    """List (image, class, box) of each selected box: [total, 3]."""

    def write(indices: LoopBuffer, counts: LoopBuffer, ends: LoopBuffer, out: LoopBuffer) -> None:
        with (
            T.parallel(as_int64(0), counts.shape[0]) as job,
            T.serial(as_int64(0), counts[job]) as at,
        ):
            row = ends[job] - counts[job] + at
            out[row, as_int64(0)] = tirx.floordiv(job, classes)
            out[row, as_int64(1)] = tirx.floormod(job, classes)
            out[row, as_int64(2)] = indices[job, at]

    return build_extern(write, [indices, counts, ends], [([total, 3], "int64")], "listed")[0]


def _find_corners(boxes: LoopBuffer, image: Expr, box: Expr, *, centered: bool) -> _Corners:
    first, second, third, fourth = (boxes[image, box, as_int64(number)] for number in range(4))
    if centered:
        half = tirx.const(2.0, _BOX)
        return (
            first - third / half, first + third / half,
            second - fourth / half, second + fourth / half,
        )  # fmt: skip
    return (
        tirx.min(first, third), tirx.max(first, third),
        tirx.min(second, fourth), tirx.max(second, fourth),
    )  # fmt: skip


def _is_overlapping(first: _Corners, second: _Corners, most: Expr) -> Expr:
    """Whether the intersection over union of two boxes exceeds a limit."""
    zero = tirx.const(0.0, _BOX)
    sides = [
        tirx.min(first[at + 1], second[at + 1]) - tirx.max(first[at], second[at]) for at in (0, 2)
    ]
    intersection = sides[0] * sides[1]
    areas = [(box[1] - box[0]) * (box[3] - box[2]) for box in (first, second)]
    union = areas[0] + areas[1] - intersection
    return tirx.all(
        sides[0] > zero, sides[1] > zero, intersection > zero,
        areas[0] > zero, areas[1] > zero, union > zero, intersection / union > most,
    )  # fmt: skip


OPERATORS: Final = (
    Operator(
        name="NonMaxSuppression",
        since=11,
        converter=convert_non_max_suppression,
        convert_dynamic=convert_dynamic_non_max_suppression,
        deciding=(0, 1, 2, 3, 4),
        traits=Trait.CHOOSES_ROWS,
    ),
)
