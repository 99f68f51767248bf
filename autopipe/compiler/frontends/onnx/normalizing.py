"""Converters of normalizations, for outputs and axes that TVM's leave out.

What works otherwise in training is refused: a compiled model is for inference.
"""

from typing import Any, Final

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx import known
from autopipe.errors import ModelError

# ruff: noqa: ANN401  TVM's converters have no types


class LayerNormalization(onnx_frontend.LayerNormalization):
    """LayerNormalization with the mean and the inverse deviation, where they are read."""

    @classmethod
    def _impl_v17(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        normalized = super()._impl_v17(bb, inputs, attr, params)
        if attr["tvm_custom"]["num_outputs"] == 1:
            return normalized
        rank = inputs[0].ty.ndim
        axes = list(range(attr.get("axis", -1) % rank, rank))
        data = bb.normalize(relax.op.astype(inputs[0], "float32"))
        mean = bb.normalize(relax.op.mean(data, axes, keepdims=True))
        variance = bb.normalize(relax.op.variance(data, axes, keepdims=True))
        steadied = relax.op.add(variance, relax.const(attr.get("epsilon", 1e-5), "float32"))
        return relax.Tuple([normalized[0], mean, bb.normalize(relax.op.rsqrt(steadied))])


class RMSNormalization(onnx_frontend.RMSNormalization):
    """RMSNormalization over all axes too, which TVM's operator has no compute for."""

    @classmethod
    def _impl_v23(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, scale = inputs[:2]
        if attr.get("axis", -1) % data.ty.ndim:
            return super()._impl_v23(bb, inputs, attr, params)
        wide = bb.normalize(relax.op.astype(data, "float32"))
        squares = relax.op.mean(relax.op.multiply(wide, wide), keepdims=True)
        steadied = relax.op.add(squares, relax.const(attr.get("epsilon", 1e-5), "float32"))
        normalized = relax.op.multiply(wide, relax.op.rsqrt(steadied))
        return relax.op.multiply(bb.normalize(relax.op.astype(normalized, data.ty.dtype)), scale)


class BatchNormalization(onnx_frontend.BatchNormalization):
    """BatchNormalization in inference."""

    @classmethod
    def _impl_v15(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if attr.get("training_mode", 0):
            raise ModelError("BatchNormalization with training_mode is not supported")
        return super()._impl_v15(bb, inputs, attr, params)


class Dropout(onnx_frontend.Dropout):
    """Dropout in inference, which drops nothing."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if attr["tvm_custom"]["num_outputs"] == 1:
            return super()._impl_v1(bb, inputs, attr, params)
        return _all_kept(bb, inputs[0])

    @classmethod
    def _impl_v12(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        _, ratio, training = (*inputs, None, None)[:3]
        if not (_is(training, 0, params) or _is(ratio, 0, params)):
            raise ModelError("Dropout with training_mode is not supported")
        if attr["tvm_custom"]["num_outputs"] == 1:
            return super()._impl_v12(bb, inputs, attr, params)
        return _all_kept(bb, inputs[0])


_OURS = (LayerNormalization, RMSNormalization, BatchNormalization, Dropout)
CONVERTERS: Final = {each.__name__: each for each in _OURS}


def _is(value: Any, number: int, params: Any) -> bool:
    """Whether an input is this number; one that is left out counts as 0, except for a ratio."""
    if value is None:
        return number == 0
    found = known.values(value, params)
    return found is not None and found.item() == number


def _all_kept(bb: Any, data: Any) -> Any:
    return relax.Tuple([data, bb.normalize(relax.op.ones(data.ty.shape, "bool"))])
