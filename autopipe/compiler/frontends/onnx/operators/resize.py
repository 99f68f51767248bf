"""Resize and Upsample."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper
from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.conversion.window import read_side
from autopipe.compiler.frontends.onnx.dynamic_sizes.resize_places import (
    WIDE_DTYPES,
    convert_dynamic_resize,
    convert_dynamic_upsample,
    read_text,
    sum_dtype,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.compiler.frontends.onnx.rewriting.constants import evaluate_node
from autopipe.errors import ModelError

_REGION_IS_AN_INPUT: Final = 11
_OPSET: Final = 19
"""Opset of the reference implementation; later ones are equal."""
_MOST_WEIGHTS: Final = 2**24
"""Maximum number of weights of one axis, above any real image."""
_RANKS: Final = (3, 4, 5)
_TVMS: Final = {
    "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
}  # fmt: skip
"""Coordinate transformation modes that TVM supports."""
_CUTS: Final = (np.minimum, np.maximum)
_PASSED_ON: Final = (
    "antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside",
    "mode", "nearest_mode",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _ResizedAxis:
    """The resizing of one axis."""

    axis: int
    before: int
    after: int
    scale: float
    region: tuple[float, float]
    """Its region of interest, for `tf_crop_and_resize`."""

    @property
    def exact(self) -> bool:
        """Whether the scale is the ratio of the sizes."""
        return abs(self.scale * self.before - self.after) <= 1e-5 * self.after


def convert_resize(site: NodeSite) -> Expr:
    """Convert Resize with constant scales or sizes, along any axes."""
    if site.opset < _REGION_IS_AN_INPUT:
        return _convert_opset_10(site, site.inputs[1])
    return _resize_image(site)


def convert_upsample(site: NodeSite) -> Expr:
    """Convert Upsample, which Resize has replaced."""
    has_unknown_mode = read_text(site.attr, "mode") not in ("", "nearest", "linear")
    is_scaled_image = "scales" in site.attr and site.inputs[0].ty.ndim == 4  # noqa: PLR2004
    if has_unknown_mode or is_scaled_image:
        return site.convert_by_tvm()
    if "scales" not in site.attr:
        return _convert_opset_10(site, site.inputs[1])
    scales = operand_facts.make_constant(np.array(site.attr["scales"], "float32"))
    return _convert_opset_10(site, scales)


def _resize_image(site: NodeSite) -> Expr:
    data, operands = site.inputs[0], [site.find_input(at) for at in range(1, 4)]
    numbers = [_read_numbers(site, at) for at in range(1, 4)]
    optional_inputs = [  # before opset 13, absent inputs were empty
        value if found != [] else None for value, found in zip(operands, numbers, strict=True)
    ]
    convert_by_tvm = partial(
        site.convert_by, onnx_frontend.Resize, [data, *optional_inputs], site.attr
    )
    if any(found is None for found in numbers):
        return convert_by_tvm()
    axes = _list_axes([int(dim) for dim in data.ty.shape.values], numbers, site.attr)
    if _is_tvms(axes, data.ty, site.attr):
        return convert_by_tvm()
    if min(axis.after for axis in axes) < 1:
        raise ModelError("Resize to a size of 0 is not supported")
    resized_axes = [axis for axis in axes if axis.before != axis.after or any(axis.region)]
    for axis in resized_axes:
        data = _resize_axis(site.bb, data, axis, site.attr)
    return data


def _convert_opset_10(site: NodeSite, scales: Expr) -> Expr:
    """Resize an image by scales, as in opset 10.

    ONNX left the rounding of `nearest` undefined. As in onnxruntime it is floor for an axis that
    becomes longer, and ceil for one that becomes shorter.
    """
    image = site.inputs[0]
    steps = [(scales, b"floor")]
    scale_values = operand_facts.read_values(scales, site.params)
    if (
        scale_values is not None
        and (scale_values < 1).any()
        and (read_text(site.attr, "mode") or "nearest") == "nearest"
    ):
        shorter, longer = (
            operand_facts.make_constant(cut(scale_values, scale_values.dtype.type(1)))
            for cut in _CUTS
        )
        steps = [(shorter, b"ceil"), (longer, b"floor")]
    for scale, nearest in steps:
        mode = {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": nearest}
        image = site.convert_by(_resize_image, [image, None, scale], {**site.attr, **mode})
        image = site.bb.normalize(image)
    return image


def _read_numbers(site: NodeSite, index: int) -> list[float] | None:
    """Return the elements of a constant, None for a computed input; [] for an absent one."""
    if site.find_input(index) is None:
        return []
    values = site.read_values(index)
    return None if values is None else values.tolist()


def _list_axes(
    shape: Sequence[int], numbers: Sequence[Sequence[float] | None], attr: Attributes
) -> list[_ResizedAxis]:
    region, scales, sizes = (list(found or ()) for found in numbers)
    places = [axis % len(shape) for axis in attr.get("axes", range(len(shape)))]
    before = [shape[place] for place in places]
    if scales:
        after = [math.floor(size * scale) for size, scale in zip(before, scales, strict=True)]
    else:
        scales = _find_scales(before, sizes, attr)
        after = [math.floor(size * scale + 0.5) for size, scale in zip(before, scales, strict=True)]
    is_cropped = read_text(attr, "coordinate_transformation_mode") == "tf_crop_and_resize"
    regions = zip(*(iter([region[: len(places)], region[len(places) :]])), strict=True)
    ends = list(regions) if is_cropped and region else [(0.0, 0.0)] * len(places)
    axis_values = zip(places, before, after, scales, ends, strict=True)
    return [_ResizedAxis(*axis) for axis in axis_values]


def _find_scales(before: Sequence[int], sizes: Sequence[float], attr: Attributes) -> list[float]:
    """Return the scales for the requested sizes under `keep_aspect_ratio_policy`."""
    scales = [size / old for size, old in zip(sizes, before, strict=True)]
    policy = read_text(attr, "keep_aspect_ratio_policy") or "stretch"
    if policy == "stretch":
        return scales
    return [min(scales) if policy == "not_larger" else max(scales)] * len(scales)


def _is_tvms(axes: Sequence[_ResizedAxis], kind: relax.TensorType, attr: Attributes) -> bool:
    """Whether TVM's operator, which computes in float32, is equivalent."""
    rank = kind.ndim
    if str(kind.dtype) in WIDE_DTYPES:
        return False
    way = read_text(attr, "coordinate_transformation_mode") or "half_pixel"
    if rank not in _RANKS or way not in _TVMS or attr.get("antialias") or "axes" in attr:
        return False
    if any(axis.before != axis.after for axis in axes if axis.axis < 2):  # noqa: PLR2004 - N and C
        return False
    if way == "align_corners" and any(axis.after == 1 for axis in axes[2:]):
        return False
    return all(axis.exact for axis in axes)


def _resize_axis(bb: BlockBuilder, data: Expr, axis: _ResizedAxis, attr: Attributes) -> Expr:
    """Resize along one axis."""
    if (read_text(attr, "mode") or "nearest") == "nearest":
        places = _resize_by_reference(np.arange(axis.before, dtype="float64")[None], axis, attr)[0]
        resized_data = relax.op.take(
            data, operand_facts.make_constant(places.astype("int32")), axis.axis
        )
    else:
        resized_data = _mix_neighbours(data, axis, attr)
    return bb.normalize(_replace_outside(bb.normalize(resized_data), axis, attr))


def _mix_neighbours(data: Expr, axis: _ResizedAxis, attr: Attributes) -> Expr:
    """Interpolate along an axis as a matrix product with the weights of each result."""
    if axis.before * max(axis.before, axis.after) > _MOST_WEIGHTS:
        raise ModelError(f"Resize by more than {_MOST_WEIGHTS} weights along one axis")
    rank, dtype = data.ty.ndim, str(data.ty.dtype)
    compute = sum_dtype(dtype)
    weights = _resize_by_reference(np.eye(axis.before, dtype=compute), axis, attr)
    order = [place for place in range(rank) if place != axis.axis] + [axis.axis]
    last = axis.axis == rank - 1
    data = relax.op.astype(data if last else relax.op.permute_dims(data, order), compute)
    weighted_sums = relax.op.matmul(data, operand_facts.make_constant(weights))
    if not last:
        back = [order.index(place) for place in range(rank)]
        weighted_sums = relax.op.permute_dims(weighted_sums, back)
    return relax.op.astype(weighted_sums, dtype)


def _replace_outside(data: Expr, axis: _ResizedAxis, attr: Attributes) -> Expr:
    """Replace results sampled outside of the input by `extrapolation_value`."""
    zeros = np.zeros((1, axis.before), "float32")
    outside = _resize_by_reference(zeros, axis, attr, extrapolation_value=1.0)[0] != 0
    if not outside.any():
        return data
    shape = [1] * data.ty.ndim
    shape[axis.axis] = axis.after
    value = relax.const(attr.get("extrapolation_value", 0.0), data.ty.dtype)
    return relax.op.where(operand_facts.make_constant(outside.reshape(shape)), value, data)


def _resize_by_reference(
    rows: Array, axis: _ResizedAxis, attr: Attributes, extrapolation_value: float = 0.0
) -> Array:
    """Resize rows by ONNX's reference implementation."""
    attributes = {name: attr[name] for name in _PASSED_ON if name in attr}
    names = ["rows", "region", *(("", "sizes") if axis.exact else ("scales",))]
    node = helper.make_node(
        "Resize", names, ["out"], axes=[1], extrapolation_value=extrapolation_value, **attributes
    )
    values = {
        "rows": rows, "region": np.array(axis.region, "float32"),
        "sizes": np.array([axis.after], "int64"), "scales": np.array([axis.scale], "float32"),
    }  # fmt: skip
    results = evaluate_node(node, values, _OPSET)
    if results is None:
        raise ModelError("Resize with these attributes is not supported")
    if results["out"].shape[1] != axis.after:
        raise ModelError("Resize by keep_aspect_ratio_policy to a rounded size is not supported")
    return np.asarray(results["out"], rows.dtype)


def _divide_by_scale(
    node: NodeProto, initializers: Mapping[str, TensorProto], side: int, *, scales: int
) -> Fraction | None:
    """Return 1 / scale of a side of an image, None if the scales are computed."""
    tensor = initializers.get(node.input[scales]) if len(node.input) > scales else None
    values = [] if tensor is None else numpy_helper.to_array(tensor).ravel().tolist()
    scale = read_side(values[2:], side)
    return 1 / Fraction(scale).limit_denominator(64) if scale > 0 else None


OPERATORS: Final = (
    Operator(
        name="Resize",
        since=19,
        converter=convert_resize,
        convert_dynamic=convert_dynamic_resize,
        steering=(1, 2, 3),
        deciding=(2, 3),
        read_sizes=(3,),
        size_factor=partial(_divide_by_scale, scales=2),
        traits=Trait.KEEPS_ERROR,
    ),
    Operator(
        name="Upsample",
        since=10,
        converter=convert_upsample,
        convert_dynamic=convert_dynamic_upsample,
        steering=(1,),
        deciding=(1,),
        size_factor=partial(_divide_by_scale, scales=1),
    ),
)
