"""Pooling of regions of interest."""

import functools
from collections.abc import Sequence
from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
    Size,
)
from autopipe.compiler.frontends.onnx.conversion.place_limits import (
    Limits,
    PlaceRule,
    Shapes,
    check_places,
)
from autopipe.compiler.frontends.onnx.operator import Operator
from autopipe.compiler.roi_align import MOST_SAMPLES, RegionForm, build_regions
from autopipe.errors import ModelError

# ruff: noqa: ARG003  TVM's converters have one signature

_IMAGE: Final = 2
"""The first spatial axis, after batch and channels."""


class RoiAlign(onnx_frontend.RoiAlign):
    """RoiAlign with any number of regions, in channels-last layout.

    TVM's operator shifts regions by half a pixel before scaling, ONNX after scaling; TVM's maximum
    is over samples, ONNX's over weighted corners.
    """

    @classmethod
    def _impl_v10(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        return _align_regions(bb, inputs, attr, half_pixel=False)

    @classmethod
    def _impl_v16(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        way = operand_facts.decode_text(attr.get("coordinate_transformation_mode", b"half_pixel"))
        return _align_regions(bb, inputs, attr, half_pixel=way == "half_pixel")


def _align_regions(bb: BlockBuilder, inputs: Inputs, attr: Attributes, *, half_pixel: bool) -> Expr:
    label = f"RoiAlign {operand_facts.quote_node_name(attr)}"
    check_places("RoiAlign", _REGIONS, inputs[:3], attr)
    samples = int(attr.get("sampling_ratio", 0))
    if samples > MOST_SAMPLES:
        raise ModelError(f"{label} takes {samples} samples a side, more than {MOST_SAMPLES}")
    form = RegionForm(
        mode="max" if operand_facts.decode_text(attr.get("mode", b"avg")) == "max" else "avg",
        samples=max(samples, 0),
        scale=float(attr.get("spatial_scale", 1.0)),
        half_pixel=half_pixel,
        cells=(int(attr.get("output_height", 1)), int(attr.get("output_width", 1))),
    )
    data = bb.emit(relax.op.permute_dims(inputs[0], [0, 2, 3, 1]))
    return bb.emit_te(
        functools.partial(build_regions, form), data, *inputs[1:3], primfunc_name_hint="roi_align",
        primfunc_attrs=form.attributes,
    )  # fmt: skip


def _limit_places(shapes: Shapes, attr: Attributes) -> Limits:  # noqa: ARG001
    data, regions, images = shapes
    return [(regions[0], images[0]), (1, data[0]), *((1, size) for size in data[_IMAGE:])]


def _list_regions(shapes: Shapes) -> Sequence[Size]:
    return shapes[1][:1]


_REGIONS: Final = PlaceRule(_limit_places, _list_regions)


OPERATORS: Final = (
    Operator(name="MaxRoiPool", since=22, converter=onnx_frontend.MaxRoiPool),
    Operator(name="RoiAlign", since=22, places=_REGIONS, converter=RoiAlign),
)
