"""Converters of operators on windows and regions of an image."""

from typing import Any, Final

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

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


class MaxUnpool(onnx_frontend.MaxUnpool):
    """MaxUnpool to the shape that follows; in another, ONNX's places mean others than TVM's."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if [*inputs, None, None][2] is not None:
            raise ModelError("MaxUnpool with the input output_shape is not supported")
        return super()._impl_v9(bb, inputs, attr, params)


class MaxPool(onnx_frontend.MaxPool):
    """MaxPool without the places of the maxima."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if attr["tvm_custom"]["num_outputs"] > 1:
            raise ModelError("MaxPool with the output Indices is not supported")
        return super()._impl_v1(bb, inputs, attr, params)


class RoiAlign(onnx_frontend.RoiAlign):
    """RoiAlign by means; ONNX's maximum is one of weighted corners, and TVM's one of samples."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        return _checked(super()._impl_v10, bb, inputs, attr, params)

    @classmethod
    def _impl_v16(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        return _checked(super()._impl_v16, bb, inputs, attr, params)


class NonMaxSuppression(onnx_frontend.OnnxOpConverter):
    """NonMaxSuppression, whose output is as long as its boxes are good: TVM pads it."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        raise ModelError(
            "NonMaxSuppression is not supported: the size of its output depends on data; "
            "leave it out of the model and select the boxes afterwards"
        )


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


_OURS = (ConvTranspose, MaxUnpool, MaxPool, RoiAlign, NonMaxSuppression, SpaceToDepth)
CONVERTERS: Final = {each.__name__: each for each in _OURS}


def _checked(convert: Any, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
    if attr.get("mode") == b"max":
        raise ModelError("RoiAlign with mode max is not supported")
    return convert(bb, inputs, attr, params)


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
