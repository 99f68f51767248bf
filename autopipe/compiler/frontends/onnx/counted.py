"""Converters of operators whose shape depends on their data: they need that data to be constant."""

from typing import Any, Final

import numpy as np
from onnx.numpy_helper import to_array
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx import known
from autopipe.compiler.frontends.onnx.tensors import Array
from autopipe.errors import ModelError

# ruff: noqa: ANN401, ARG003  TVM's converters have no types, and one signature


class NonZero(onnx_frontend.OnnxOpConverter):
    """The places of what is not 0 in a constant."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data = _constant("NonZero", inputs[0], attr, params)
        places = np.stack(np.nonzero(np.atleast_1d(data)))
        return relax.const(places.astype("int64"), "int64")


class Unique(onnx_frontend.OnnxOpConverter):
    """The different elements or slices of a constant."""

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data = _constant("Unique", inputs[0], attr, params)
        axis = attr.get("axis")
        found, first, inverse, counts = np.unique(
            data, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        order = np.arange(len(first)) if attr.get("sorted", 1) else np.argsort(first)
        places = np.argsort(order)[inverse.reshape(-1)]
        results = (np.take(found, order, axis or 0), first[order], places, counts[order])
        count = attr["tvm_custom"]["num_outputs"]
        made = [known.stored(results[0])]
        made += [known.stored(each.astype("int64")) for each in results[1:count]]
        return relax.Tuple(made) if count > 1 else made[0]


class Compress(onnx_frontend.OnnxOpConverter):
    """The slices that a constant chooses."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        chosen = np.flatnonzero(_constant("Compress", inputs[1], attr, params))
        data, axis = inputs[0], attr.get("axis")
        if axis is None:
            data, axis = bb.normalize(relax.op.reshape(data, [-1])), 0
        return bb.normalize(relax.op.take(data, relax.const(chosen.astype("int64"), "int64"), axis))


class ConstantOfShape(onnx_frontend.ConstantOfShape):
    """One number, many times; without axes it is the number, which TVM has no shape for."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        sizes = known.values(inputs[0], params)
        if sizes is None or sizes.size:
            return super()._impl_v9(bb, inputs, attr, params)
        value = to_array(attr["value"]) if "value" in attr else np.zeros(1, "float32")
        return known.stored(value.reshape(()))


CONVERTERS: Final = {each.__name__: each for each in (Compress, ConstantOfShape, NonZero, Unique)}


def _constant(kind: str, operand: Any, attr: Any, params: Any) -> Array:
    found = known.values(operand, params)
    if found is None:
        raise ModelError(
            f"the shape of what {kind} {known.name(attr)} returns depends on what the model is "
            "given; shapes have to be known before the model runs"
        )
    return found
