"""Converters of operators on windows and regions of an image."""

import functools
from typing import Any, Final

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx import known, lookups
from autopipe.compiler.regions import MOST_SAMPLES, RegionForm, plain
from autopipe.errors import ModelError

# ruff: noqa: ANN401, ARG003  TVM's converters have no types, and one signature


class ConvTranspose(onnx_frontend.ConvTranspose):
    """ConvTranspose to a given shape, too."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if "output_shape" in attr:
            attr = _with_pads(attr, [int(dim) for dim in inputs[0].ty.shape.values[2:]],
                              [int(dim) for dim in inputs[1].ty.shape.values[2:]])  # fmt: skip
        return super()._impl_v1(bb, inputs, attr, params)


class RoiAlign(onnx_frontend.RoiAlign):
    """RoiAlign with any number of regions, on channels that come last.

    TVM's moves regions by half a pixel before it scales them, and ONNX does afterwards; TVM's
    maximum is one of samples, and ONNX's one of weighted corners.
    """

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        return _aligned(bb, inputs, attr, half_pixel=False)

    @classmethod
    def _impl_v16(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        way = known.text(attr.get("coordinate_transformation_mode", b"half_pixel"))
        return _aligned(bb, inputs, attr, half_pixel=way == "half_pixel")


class NonMaxSuppression(onnx_frontend.OnnxOpConverter):
    """NonMaxSuppression, whose output TVM pads. `found` has one for sizes that are computed."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        raise ModelError("the size of what NonMaxSuppression finds depends on data")


class SpaceToDepth(onnx_frontend.SpaceToDepth):
    """SpaceToDepth in either order of the blocks."""

    @classmethod
    def _impl_v28(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if attr.get("mode", b"DCR") == b"DCR":
            return super()._impl_v1(bb, inputs, attr, params)
        size = int(attr["blocksize"])
        batch, depth, height, width = (int(dim) for dim in inputs[0].ty.shape.values)
        high, wide = height // size, width // size
        blocks = relax.op.reshape(inputs[0], (batch, depth, high, size, wide, size))
        ordered = relax.op.permute_dims(bb.normalize(blocks), [0, 1, 3, 5, 2, 4])
        return relax.op.reshape(ordered, (batch, depth * size * size, high, wide))


_OURS = (ConvTranspose, RoiAlign, NonMaxSuppression, SpaceToDepth)
CONVERTERS: Final = {converter.__name__: converter for converter in _OURS}


def _aligned(bb: Any, inputs: Any, attr: Any, *, half_pixel: bool) -> Any:
    what = f"RoiAlign {known.name(attr)}"
    lookups.check("RoiAlign", inputs[:3], attr)
    samples = int(attr.get("sampling_ratio", 0))
    if samples > MOST_SAMPLES:
        raise ModelError(f"{what} takes {samples} samples a side, more than {MOST_SAMPLES}")
    form = RegionForm(
        mode="max" if known.text(attr.get("mode", b"avg")) == "max" else "avg",
        samples=max(samples, 0),
        scale=float(attr.get("spatial_scale", 1.0)),
        half_pixel=half_pixel,
        cells=(int(attr.get("output_height", 1)), int(attr.get("output_width", 1))),
    )
    data = bb.emit(relax.op.permute_dims(inputs[0], [0, 2, 3, 1]))
    return bb.emit_te(
        functools.partial(plain, form), data, *inputs[1:3], primfunc_name_hint="roi_align",
        primfunc_attrs=form.attributes,
    )  # fmt: skip


def _with_pads(attr: Any, sizes: list[int], window: list[int]) -> Any:
    """Return the attributes with the pads that lead to the shape that is asked for."""
    rank = len(sizes)
    wanted = list(attr["output_shape"])[-rank:]
    ones, more = [1] * rank, list(attr.get("output_padding", [0] * rank))
    strides, dilations = attr.get("strides", ones), attr.get("dilations", ones)
    begin, end = [], []
    for axis in range(rank):
        reach = (window[axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (sizes[axis] - 1) + more[axis] + reach - wanted[axis]
        if total < 0:
            more[axis], total = more[axis] - total, 0
        half = total // 2
        less_first = attr.get("auto_pad") == b"SAME_UPPER"
        begin.append(half if less_first else total - half)
        end.append(total - begin[-1])
    kept = {name: value for name, value in attr.items() if name not in ("auto_pad", "output_shape")}
    return {**kept, "pads": begin + end, "output_padding": more}
