"""Convert Resize of dynamic sizes, with coordinates in integer arithmetic, axis by axis."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Size,
)
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    ExactPart,
    Extents,
    advise_on_sizes,
    as_int64,
    as_integer,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.resized_axis import (
    PLACES,
    ROUNDINGS,
    OpenAxis,
    Place,
    Rounding,
    clip_place,
    repeats_elements,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import emit_kernel
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.errors import ModelError

_MOST_SIZES: Final = 2**20
"""Maximum number of sizes of a dimension that a scale is checked at."""
_FINEST: Final = 1000
"""Maximum denominator of the fraction that approximates a scale."""


WIDE_DTYPES: Final = ("float64", "int32", "int64", "uint32", "uint64")
"""Dtypes of higher precision than float32."""


Taps = Callable[[Expr], list[tuple[int, Expr]]]
"""Offsets of neighbours and their weights, from the fractional part of the coordinate."""


_OPSET_10: Final = {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"}
"""Attributes of Resize in opset 11 that has the meaning of Resize in opset 10, and of Upsample."""


def convert_dynamic_resize(site: NodeSite) -> Expr | None:
    """Convert Resize of a dynamic size; None if all are static."""
    inputs, sizes = site.inputs, site.read_sizes()
    operands = [*site.numbers, None, None, None][:4]
    if len(inputs) < 3:  # noqa: PLR2004 - as in opset 10
        site = replace(site, attr={**site.attr, **_OPSET_10})
        operands = [operands[0], None, operands[1], None]
    elif len(inputs) > 3 and inputs[3] is not None and operands[3] is None:  # noqa: PLR2004
        return None
    if not is_open([*sizes, *(() if operands[3] is None else operands[3])]):
        return None
    return _resize_axes(site, _list_axes(site, sizes, operands[2], operands[3]))


def convert_dynamic_upsample(site: NodeSite) -> Expr | None:
    """Convert Upsample of a dynamic size; None if all are static."""
    sizes = site.read_sizes()
    if not is_open(sizes):
        return None
    scales = np.array(site.attr["scales"], "float32") if "scales" in site.attr else site.numbers[1]
    site = replace(site, attr={**site.attr, **_OPSET_10})
    return _resize_axes(site, _list_axes(site, sizes, scales, None))


def _list_axes(
    site: NodeSite, sizes: list[Size], scales: Array | None, target_sizes: Array | None
) -> list[OpenAxis]:
    extents = site.extents
    places = [axis % len(sizes) for axis in site.attr.get("axes", range(len(sizes)))]
    if scales is None or not len(scales):
        if target_sizes is None:
            raise ModelError(
                f"{site.label} by scales that are computed is not supported with dynamic shapes; "
                f"{advise_on_sizes(sizes)}"
            )
        resized_axes = [
            _scale_to_size(extents, at, sizes[at], size)
            for at, size in zip(places, target_sizes, strict=True)
        ]
    else:
        resized_axes = [
            _scale_by_factor(site, at, sizes[at], scale)
            for at, scale in zip(places, scales, strict=True)
        ]
    return [one for one in resized_axes if not extents.equal(one.before, one.after)]


def _scale_to_size(extents: Extents, axis: int, before: Size, after: Size) -> OpenAxis:
    for larger, smaller in ((after, before), (before, after)):
        if not (isinstance(larger, int) or isinstance(smaller, int)):
            factor = extents.simple(tirx.floordiv(larger, smaller))
            if isinstance(factor, int) and factor > 0 and extents.equal(factor * smaller, larger):
                return OpenAxis(
                    axis, before, after, *((factor, 1) if larger is after else (1, factor))
                )
    return OpenAxis(axis, before, after, after, before)


def _scale_by_factor(site: NodeSite, axis: int, before: Size, scale: ExactPart | float) -> OpenAxis:
    extents = site.extents
    exact = None
    if not isinstance(scale, ExactPart):
        exact = Fraction(float(scale))
    elif isinstance(scale.number, int):
        exact = Fraction(scale.number, scale.over)
    if exact is None:
        raise ModelError(
            f"{site.label} by a scale that is computed is not supported with dynamic shapes; "
            f"{advise_on_sizes([before])}"
        )
    ratio = exact.limit_denominator(_FINEST)
    if ratio <= 0:
        raise ModelError(
            f"{site.label} by {float(exact)}: a scale has to be above 0, and at least 1/{_FINEST} "
            f"with dynamic shapes; {advise_on_sizes([before])}"
        )
    after = extents.simple(
        tirx.floordiv(as_int64(before * ratio.numerator), as_integer(ratio.denominator))
    )
    if ratio.denominator > 1 and not _has_scale_sizes(
        extents, before, ratio, np.float32(float(exact))
    ):
        raise ModelError(
            f"{site.label} by {float(exact)} rounds differently at some sizes; "
            f"{advise_on_sizes([before])}"
        )
    return OpenAxis(axis, before, after, ratio.numerator, ratio.denominator)


def _has_scale_sizes(extents: Extents, before: Size, ratio: Fraction, scale: np.float32) -> bool:
    """Whether a fraction gives the same sizes as the float32 scale at all dynamic sizes."""
    first, last = extents.bounds(before)
    if last - first > _MOST_SIZES:
        return False
    sizes = np.arange(first, last + 1)
    products = np.floor(sizes.astype("float32") * scale).astype("int64")
    return bool((products == sizes * ratio.numerator // ratio.denominator).all())


def _resize_axes(site: NodeSite, axes: Sequence[OpenAxis]) -> Expr:
    extents, bb, attr, data = site.extents, site.bb, site.attr, site.inputs[0]
    mode = read_text(attr, "mode") or "nearest"
    transformation = read_text(attr, "coordinate_transformation_mode") or "half_pixel"
    place = PLACES.get(transformation)
    policy = read_text(attr, "keep_aspect_ratio_policy") or "stretch"
    if place is None or attr.get("antialias") or attr.get("exclude_outside") or policy != "stretch":
        sizes = [one.before for one in axes] or extents.shape(data, site.label)
        raise ModelError(
            f"{site.label} as {transformation}, with antialias, exclude_outside or "
            "keep_aspect_ratio_policy, is not supported with dynamic shapes; "
            f"{advise_on_sizes(sizes)}"
        )
    if not axes:
        return data
    for axis in axes:
        extents.require(
            bb, [(1, axis.before)], f"{site.label} makes something of nothing", [axis.after]
        )
    sizes = extents.shape(data, site.label)
    if mode == "nearest":
        rounding = ROUNDINGS[read_text(attr, "nearest_mode") or "round_prefer_floor"]
        return _take_nearest(bb, data, sizes, axes, (place, rounding))
    taps = (
        _weigh_linearly
        if mode == "linear"
        else _make_cubic_weights(attr.get("cubic_coeff_a", -0.75))
    )
    for axis in axes:
        data = _mix_neighbours(bb, data, sizes, axis, (place, taps))
        sizes[axis.axis] = axis.after
    return data


def _take_nearest(
    bb: BlockBuilder,
    data: Expr,
    sizes: list[Size],
    axes: Sequence[OpenAxis],
    rules: tuple[Place, Rounding],
) -> Expr:
    """Resize axes by nearest neighbours, with `repeat` where that is the same: it has a layout."""
    place, rounding = rules
    if all(repeats_elements(axis, place, rounding) for axis in axes):
        for axis in axes:
            data = bb.emit(relax.op.repeat(data, axis.up, axis.axis))
        return data

    def compute(data: te.Tensor, size_arguments: Sequence[Expr]) -> te.Tensor:
        after, bound_axes = (
            list(size_arguments[: len(sizes)]),
            _read_axes(axes, size_arguments[len(sizes) :]),
        )

        def at(*index: Expr) -> Expr:
            coordinates = list(index)
            for axis in bound_axes:
                number, over = place(axis, index[axis.axis].astype("int64"))
                coordinates[axis.axis] = clip_place(rounding(number, over), axis.before)
            return data[tuple(coordinates)]

        return te.compute(after, at, name="resize")

    return emit_kernel(
        bb, compute, data, [*_list_resized_sizes(sizes, axes), *_list_given_sizes(axes)], "resize"
    )


def _mix_neighbours(
    bb: BlockBuilder, data: Expr, sizes: list[Size], axis: OpenAxis, rules: tuple[Place, Taps]
) -> Expr:
    """Resize an axis by weighted sums of neighbours."""
    dtype, (place, taps) = str(data.ty.dtype), rules
    wider = sum_dtype(dtype)

    def compute(data: te.Tensor, size_arguments: Sequence[Expr]) -> te.Tensor:
        (bound_axis,) = _read_axes([axis], size_arguments[len(sizes) :])

        def at(*index: Expr) -> Expr:
            number, over = place(bound_axis, index[axis.axis].astype("int64"))
            first = tirx.floordiv(number, over)
            part = (number - first * over).astype(wider) / over.astype(wider)
            total = tirx.const(0.0, wider)
            for step, weight in taps(part):
                coordinates = list(index)
                coordinates[axis.axis] = clip_place(first + step, bound_axis.before)
                total = total + weight * data[tuple(coordinates)].astype(wider)
            return total.astype(dtype)

        return te.compute(list(size_arguments[: len(sizes)]), at, name="resize")

    return emit_kernel(
        bb,
        compute,
        data,
        [*_list_resized_sizes(sizes, [axis]), *_list_given_sizes([axis])],
        "resize",
    )


def _list_resized_sizes(sizes: list[Size], axes: Sequence[OpenAxis]) -> list[Size]:
    by_axis = {axis.axis: axis.after for axis in axes}
    return [by_axis.get(at, size) for at, size in enumerate(sizes)]


def _list_given_sizes(axes: Sequence[OpenAxis]) -> list[Size]:
    return [number for axis in axes for number in (axis.before, axis.after, axis.up, axis.down)]


def _read_axes(axes: Sequence[OpenAxis], size_arguments: Sequence[Expr]) -> list[OpenAxis]:
    return [
        OpenAxis(axis.axis, *size_arguments[4 * at : 4 * at + 4]) for at, axis in enumerate(axes)
    ]


def _weigh_linearly(part: Expr) -> list[tuple[int, Expr]]:
    return [(0, tirx.const(1.0, part.ty) - part), (1, part)]


def _make_cubic_weights(sharpness: float) -> Taps:
    """Return the weights of four neighbours (Keys, 1981)."""
    a = float(sharpness)

    def taps(part: Expr) -> list[tuple[int, Expr]]:
        def near(x: Expr) -> Expr:
            return ((a + 2) * x - (a + 3)) * x * x + 1.0

        def far(x: Expr) -> Expr:
            return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

        rest = tirx.const(1.0, part.ty) - part
        return [(-1, far(part + 1.0)), (0, near(part)), (1, near(rest)), (2, far(rest + 1.0))]

    return taps


def read_text(attr: Attributes, name: str) -> str:
    """Return an attribute as text, empty if it is absent."""
    return operand_facts.decode_text(attr.get(name, b""))


def sum_dtype(dtype: str) -> str:
    """Return the dtype of sums of neighbours, which represents all values of a dtype."""
    return "float64" if dtype in WIDE_DTYPES else "float32"
