"""Converters of activations that lose digits, infinities or what is not a number in TVM's form.

A comparison with what is not a number is false. So the choices here are made such that it is passed
on, as onnxruntime does, and does not become a small number that hides where it came from.
"""

from functools import partial
from typing import Any, Final

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

# ruff: noqa: ANN401, ARG003  TVM's converters have no types, and one signature

_TERMS: Final = {"float16": 4, "float32": 8, "float64": 17}
"""Of the series in `_log_of_one_and`, until the next is less than a rounding."""
_SELU_ALPHA: Final = 1.67326319217681884765625
_SELU_GAMMA: Final = 1.05070102214813232421875


class Elu(onnx_frontend.OnnxOpConverter):
    """Elu of any float."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        return _elu(bb, inputs[0], float(attr.get("alpha", 1.0)), 1.0)


class Celu(onnx_frontend.OnnxOpConverter):
    """Celu, whose body in ONNX overflows where x / alpha does, and makes a list of a number."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, number = inputs[0], _number(inputs[0])
        alpha = float(attr.get("alpha", 1.0))
        scaled = bb.normalize(relax.op.divide(data, number(alpha)))
        below = relax.op.subtract(bb.normalize(relax.op.exp(scaled)), number(1.0))
        below = bb.normalize(relax.op.multiply(bb.normalize(below), number(alpha)))
        return relax.op.where(bb.normalize(relax.op.greater(data, number(0.0))), data, below)


class Shrink(onnx_frontend.OnnxOpConverter):
    """Shrink; of integers it is computed in float32, as its attributes are."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        dtype = str(inputs[0].ty.dtype)
        data = inputs[0]
        if not dtype.startswith("float"):
            data = bb.normalize(relax.op.astype(data, "float32"))
        number = _number(data)
        bias, edge = float(attr.get("bias", 0.0)), float(attr.get("lambd", 0.5))
        less = bb.normalize(relax.op.subtract(data, number(bias)))
        more = bb.normalize(relax.op.add(data, number(bias)))
        above, below = (
            bb.normalize(compare(data, number(bound)))
            for compare, bound in ((relax.op.greater, edge), (relax.op.less, -edge))
        )
        shrunk = bb.normalize(relax.op.where(below, more, number(0.0)))
        shrunk = bb.normalize(relax.op.where(above, less, shrunk))
        return shrunk if dtype.startswith("float") else relax.op.astype(shrunk, dtype)


class Selu(onnx_frontend.OnnxOpConverter):
    """Selu of any float."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        alpha = float(attr.get("alpha", _SELU_ALPHA))
        return _elu(bb, inputs[0], alpha, float(attr.get("gamma", _SELU_GAMMA)))


class ThresholdedRelu(onnx_frontend.OnnxOpConverter):
    """ThresholdedRelu of any float; a product with 0 would make nan of an infinity."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, number = inputs[0], _number(inputs[0])
        above = bb.normalize(relax.op.greater(data, number(float(attr.get("alpha", 1.0)))))
        return relax.op.where(above, data, number(0.0))


class HardSigmoid(onnx_frontend.OnnxOpConverter):
    """HardSigmoid, bounded by 0 and 1 in the order that keeps what is not a number."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, number = inputs[0], _number(inputs[0])
        scaled = relax.op.multiply(data, number(float(attr.get("alpha", 0.2))))
        line = bb.normalize(relax.op.add(scaled, number(float(attr.get("beta", 0.5)))))
        low = bb.normalize(relax.op.minimum(number(1.0), line))
        return relax.op.maximum(number(0.0), low)


class Sign(onnx_frontend.Sign):
    """Sign, also of what is not a number."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data = inputs[0]
        sign = bb.normalize(super()._impl_v9(bb, inputs, attr, params))
        if not str(data.ty.dtype).startswith("float"):
            return sign
        return relax.op.where(bb.normalize(relax.op.isnan(data)), data, sign)


class Softplus(onnx_frontend.OnnxOpConverter):
    """Softplus with all digits where it is small."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        return _softplus(bb, inputs[0])


class Mish(onnx_frontend.OnnxOpConverter):
    """Mish by such a Softplus."""

    @classmethod
    def _impl_v18(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        factor = bb.normalize(relax.op.tanh(_softplus(bb, inputs[0])))
        return relax.op.multiply(inputs[0], factor)


_OURS = (Celu, Elu, HardSigmoid, Mish, Selu, Shrink, Sign, Softplus, ThresholdedRelu)
CONVERTERS: Final = {each.__name__: each for each in _OURS}


def _number(data: Any) -> Any:
    return partial(relax.const, dtype=str(data.ty.dtype))


def _elu(bb: Any, data: Any, alpha: float, gamma: float) -> Any:
    number = _number(data)
    below = relax.op.subtract(bb.normalize(relax.op.exp(data)), number(1.0))
    below = bb.normalize(relax.op.multiply(below, number(alpha * gamma)))
    above = data if gamma == 1 else bb.normalize(relax.op.multiply(data, number(gamma)))
    return relax.op.where(bb.normalize(relax.op.greater(data, number(0.0))), above, below)


def _softplus(bb: Any, data: Any) -> Any:
    small = relax.op.exp(bb.normalize(relax.op.negative(bb.normalize(relax.op.abs(data)))))
    positive = bb.normalize(relax.op.maximum(data, _number(data)(0.0)))
    return bb.normalize(relax.op.add(positive, _log_of_one_and(bb, bb.normalize(small))))


def _log_of_one_and(bb: Any, data: Any) -> Any:
    """Return log(1 + x) for x from 0 to 1 by the series of twice the artanh of x / (2 + x).

    The sum 1 + x would cut off what is left of a small x.
    """
    number = _number(data)
    ratio = bb.normalize(relax.op.divide(data, bb.normalize(relax.op.add(data, number(2.0)))))
    square = bb.normalize(relax.op.multiply(ratio, ratio))
    terms = _TERMS[str(data.ty.dtype)]
    total = number(2.0 / (2 * terms - 1))
    for term in reversed(range(terms - 1)):
        product = bb.normalize(relax.op.multiply(total, square))
        total = bb.normalize(relax.op.add(product, number(2.0 / (2 * term + 1))))
    return bb.normalize(relax.op.multiply(ratio, total))
