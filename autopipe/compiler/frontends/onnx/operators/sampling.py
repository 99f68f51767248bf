"""Images sampled at computed coordinates."""

import functools
from collections.abc import Sequence
from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, Inputs, Size
from autopipe.compiler.frontends.onnx.conversion.places import (
    Limits,
    PlaceRule,
    Shapes,
    clip_before,
    list_but_last,
)
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.conversion.window import OUTER
from autopipe.compiler.frontends.onnx.operator import Operator
from autopipe.compiler.roi_align import MOST_SAMPLES, RegionForm, build_regions
from autopipe.errors import ModelError

_HALF_PIXEL: Final = 16
"""The first opset of RoiAlign with half pixels."""
_FURTHEST: Final = 2**30
"""Maximum distance in pixels from the center of an image, within int32; others are clipped."""
_LONGEST: Final = 2**16
"""Assumed maximum of a dynamic side in pixels."""


def _clip_grid(site: NodeSite, shape: Sequence[Size]) -> Inputs:
    """Clip the grid of an operator with normalized coordinates (-1 to 1 across the image)."""
    image, grid = site.inputs[:2]
    longest = max(size if isinstance(size, int) else _LONGEST for size in shape[OUTER:])
    most, dtype = float(_FURTHEST // longest), str(grid.ty.dtype)
    low = relax.op.maximum(grid, relax.const(-most, dtype))
    return [image, site.bb.normalize(relax.op.minimum(low, relax.const(most, dtype)))]


def _limit_grid(shapes: Shapes, attr: Attributes) -> Limits:  # noqa: ARG001
    data, places = shapes
    return [(places[0], data[0]), *((1, size) for size in data[OUTER:])]


_GRID: Final = PlaceRule(_limit_grid, list_but_last)


def convert_roi_align(site: NodeSite) -> Expr:
    """Convert RoiAlign with any number of regions, in channels-last layout.

    TVM's operator shifts regions by half a pixel before scaling, ONNX after scaling; TVM's maximum
    is over samples, ONNX's over weighted corners.
    """
    attr = site.attr
    way = operand_facts.decode_text(attr.get("coordinate_transformation_mode", b"half_pixel"))
    samples = int(attr.get("sampling_ratio", 0))
    if samples > MOST_SAMPLES:
        raise ModelError(f"{site.label} takes {samples} samples a side, more than {MOST_SAMPLES}")
    form = RegionForm(
        mode="max" if operand_facts.decode_text(attr.get("mode", b"avg")) == "max" else "avg",
        samples=max(samples, 0),
        scale=float(attr.get("spatial_scale", 1.0)),
        half_pixel=way == "half_pixel" and site.opset >= _HALF_PIXEL,
        cells=(int(attr.get("output_height", 1)), int(attr.get("output_width", 1))),
    )
    data = site.bb.emit(relax.op.permute_dims(site.inputs[0], [0, 2, 3, 1]))
    return site.bb.emit_te(
        functools.partial(build_regions, form), data, *site.inputs[1:3],
        primfunc_name_hint="roi_align", primfunc_attrs=form.attributes,
    )  # fmt: skip


def _limit_regions(shapes: Shapes, attr: Attributes) -> Limits:  # noqa: ARG001
    data, regions, images = shapes
    return [(regions[0], images[0]), (1, data[0]), *((1, size) for size in data[OUTER:])]


_REGIONS: Final = PlaceRule(_limit_regions, lambda shapes: shapes[1][:1])


OPERATORS: Final = (
    Operator(name="AffineGrid", since=20),
    Operator(
        name="GridSample",
        since=22,
        places=_GRID,
        converter=clip_before(onnx_frontend.GridSample, _clip_grid),
    ),
    Operator(name="MaxRoiPool", since=22),
    Operator(name="RoiAlign", since=22, places=_REGIONS, converter=convert_roi_align),
)
