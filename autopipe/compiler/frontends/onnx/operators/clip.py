"""Clip: limit values to bounds."""

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ARG003  TVM's converters have one signature


class Clip(onnx_frontend.Clip):
    """Clip as a maximum and a minimum; an absent bound is the extreme finite value of the dtype."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        ends = np.finfo("float32")
        bounds = (attr.get("min", ends.min), attr.get("max", ends.max))
        return _clip_values(
            bb, inputs[0], *(relax.const(bound, inputs[0].ty.dtype) for bound in bounds)
        )

    @classmethod
    def _impl_v13(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data = inputs[0]
        low, high = (_read_scalar(find_optional_input(inputs, at)) for at in (1, 2))
        if str(data.ty.dtype).startswith("float"):  # integers have no infinities
            ends = np.finfo(str(data.ty.dtype))
            low = relax.const(ends.min, data.ty.dtype) if low is None else low
            high = relax.const(ends.max, data.ty.dtype) if high is None else high
        if _is_unusual(low) or _is_unusual(high):
            operands = onnx_frontend.onnx_input([data, low, high])
            return super()._impl_v13(bb, operands, attr, params)
        return _clip_values(bb, data, low, high)


def _read_scalar(bound: Expr | None) -> Expr | None:
    """Reshape a constant bound to a scalar; PaddlePaddle exports shape [1]."""
    if isinstance(bound, GenericConst) and bound.value.numpy().shape == (1,):
        return operand_facts.make_constant(bound.value.numpy().reshape(()))
    return bound


def _is_unusual(bound: Expr | None) -> bool:
    """Whether a bound is computed or NaN, which onnxruntime treats as no bound."""
    if bound is None:
        return False
    return not isinstance(bound, GenericConst) or bool(np.isnan(bound.value.numpy()).any())


def _clip_values(bb: BlockBuilder, data: Expr, low: Expr | None, high: Expr | None) -> Expr:
    if low is not None:
        data = bb.normalize(relax.op.maximum(data, low))
    if high is not None:
        data = bb.normalize(relax.op.minimum(data, high))
    return data


OPERATORS: Final = (
    Operator(
        name="Clip",
        since=13,
        converter=Clip,
        moments=rules.rectified,
        traits=Trait.FOLDABLE
        | Trait.COMPUTES_SIZES
        | Trait.KEEPS_ERROR
        | Trait.EXACT_SPECIALS
        | Trait.COMPARES,
    ),
)
