"""Converters of operators on windows and regions of an image."""

import functools
import itertools
from typing import Any, Final

from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx import known
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
    """RoiAlign; ONNX's maximum is one of weighted corners, and TVM's one of samples.

    TVM moves regions by half a pixel before it scales them, and ONNX does afterwards.
    """

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if attr.get("mode") == b"max":
            return _largest(bb, inputs, attr, half_pixel=False)
        return super()._impl_v10(bb, inputs, attr, params)

    @classmethod
    def _impl_v16(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if attr.get("mode") == b"max":
            way = known.text(attr.get("coordinate_transformation_mode", b"half_pixel"))
            return _largest(bb, inputs, attr, half_pixel=way == "half_pixel")
        return super()._impl_v16(bb, _shifted(bb, inputs, attr), attr, params)


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


_MOST_SAMPLES: Final = 256
"""Samples of a cell along a side; their square is what each number of the result takes."""


def _shifted(bb: Any, inputs: Any, attr: Any) -> Any:
    """Return the inputs with regions moved so that TVM's half a pixel is one of the image.

    ONNX takes `region * scale - 0.5`, and TVM `(region - 0.5) * scale`.
    """
    way = known.text(attr.get("coordinate_transformation_mode", b"half_pixel"))
    scale = float(attr.get("spatial_scale", 1.0))
    if way != "half_pixel" or scale == 1 or not scale:
        return inputs
    data, regions, images = inputs
    shift = relax.const(0.5 - 0.5 / scale, regions.ty.dtype)
    return [data, bb.normalize(relax.op.add(regions, shift)), images]


def _largest(bb: Any, inputs: Any, attr: Any, *, half_pixel: bool) -> Any:
    """Return the largest of all corners that samples lie between, each times its weight."""
    what = f"RoiAlign {known.name(attr)}"
    batches, channels, *extents = known.sizes(inputs[0], what)
    counts = [int(attr.get(f"output_{side}", 1)) for side in ("height", "width")]
    ratio, scale = int(attr.get("sampling_ratio", 0)), float(attr.get("spatial_scale", 1.0))
    if ratio < 1:
        raise ModelError(f"{what} with mode max needs a sampling_ratio above 0")
    if ratio > _MOST_SAMPLES:
        raise ModelError(f"{what} takes {ratio} samples a side, more than {_MOST_SAMPLES}")
    places = [known.sizes(inputs[1], what)[0], channels, *counts]

    def pool(data: Any, regions: Any, numbers: Any) -> Any:
        samples = [te.reduce_axis((0, ratio), f"r{axis}") for axis in range(2)]

        def at(n: Any, c: Any, *place: Any) -> Any:
            batch = tirx.max(tirx.min(numbers[n].astype("int32"), batches - 1), 0)
            lows, parts, outside = [], [], []
            for axis, extent in enumerate(extents):
                start, end = (regions[n, side - axis] * scale - 0.5 * half_pixel for side in (1, 3))
                size = end - start if half_pixel else tirx.max(end - start, 1.0)
                step = size / float(counts[axis])
                inner = (samples[axis].astype(data.dtype) + 0.5) * step / float(ratio)
                real = start + place[axis].astype(data.dtype) * step + inner
                outside += [real < -1.0, real > float(extent)]
                real = tirx.min(tirx.max(real, 0.0), float(extent - 1))
                low = tirx.floor(real)
                lows.append(low.astype("int32"))
                parts.append(real - low)
            values = []
            for dy, dx in itertools.product((0, 1), (0, 1)):
                row, column = (tirx.min(low + d, extent - 1) for low, d, extent in
                               zip(lows, (dy, dx), extents, strict=True))  # fmt: skip
                share = (parts[0] if dy else 1 - parts[0]) * (parts[1] if dx else 1 - parts[1])
                values.append(data[batch, c, row, column] * share)
            best = functools.reduce(tirx.max, values)
            zero = tirx.const(0, data.dtype)
            return te.max(tirx.if_then_else(tirx.any(*outside), zero, best), axis=samples)

        return te.compute(places, at, name="roi_align_max")

    return bb.emit_te(pool, *inputs[:3], primfunc_name_hint="roi_align_max")


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
