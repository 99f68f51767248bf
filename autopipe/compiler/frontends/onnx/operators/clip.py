"""Clip: limit values to bounds."""

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Expr, GenericConst

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

_BOUNDS_ARE_INPUTS: Final = 11


def convert_clip(site: NodeSite) -> Expr:
    """Convert Clip as a maximum and a minimum.

    An absent bound is the extreme finite value of the dtype.
    """
    data = site.inputs[0]
    dtype = data.ty.dtype
    if site.opset < _BOUNDS_ARE_INPUTS:
        ends = np.finfo("float32")
        bounds = (site.attr.get("min", ends.min), site.attr.get("max", ends.max))
        return _clip_values(site.bb, data, *(relax.const(bound, dtype) for bound in bounds))
    low, high = (_read_scalar(site.find_input(at)) for at in (1, 2))
    if str(dtype).startswith("float"):  # integers have no infinities
        ends = np.finfo(str(dtype))
        low = relax.const(ends.min, dtype) if low is None else low
        high = relax.const(ends.max, dtype) if high is None else high
    if _is_unusual(low) or _is_unusual(high):
        return site.convert_by_tvm([data, low, high])
    return _clip_values(site.bb, data, low, high)


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
        converter=convert_clip,
        moments=rules.rectified,
        traits=Trait.FOLDABLE
        | Trait.COMPUTES_SIZES
        | Trait.KEEPS_ERROR
        | Trait.EXACT_SPECIALS
        | Trait.COMPARES,
    ),
)
