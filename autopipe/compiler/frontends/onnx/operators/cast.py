"""Cast and CastLike: conversion to another dtype."""

from functools import partial
from typing import Final

import numpy as np
from onnx import TensorProto
from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.reading.tensors import Array

_FOUR_BITS: Final = ("int4", "uint4")
"""Kept in int8 and uint8: TVM 0.27 generates wrong code for them."""
_THROUGH: Final = {
    **dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32"), "int32"),
    **dict.fromkeys(("uint32", "int64", "uint64"), "int64"),
}
"""The intermediate signed integer dtype of a cast from float, by target dtype."""


def convert_cast(site: NodeSite) -> Expr:
    """Convert Cast, of floats to integers as onnxruntime does on x86.

    Values out of range become the minimum, which ONNX leaves undefined. Integers below 32 bits take
    the low bits of such a number.
    """
    bb = site.bb
    data, dtype = site.inputs[0], onnx_frontend.get_type(site.attr["to"])
    if dtype in _FOUR_BITS:
        attr = {**site.attr, "to": TensorProto.INT8}
        return _extract_low_bits(
            site.convert_by(convert_cast, [_round_floats(bb, data)], attr), dtype
        )
    if not isinstance(data.ty, relax.TensorType) or dtype not in _THROUGH:
        return site.convert_by_tvm()
    if not str(data.ty.dtype).startswith("float"):
        return site.convert_by_tvm()
    if isinstance(data, GenericConst):
        return operand_facts.make_constant(_convert_to_integers(data.value.numpy(), dtype))
    through = _THROUGH[dtype]
    least = float(np.iinfo(through).min)
    if str(data.ty.dtype) == "float16":
        data = bb.normalize(relax.op.astype(data, "float32"))
    number = partial(relax.const, dtype=str(data.ty.dtype))
    inside = relax.op.logical_and(data >= number(least), data < number(-least))
    integers = relax.op.astype(relax.op.where(inside, data, number(least)), through)
    return integers if through == dtype else relax.op.astype(integers, dtype)


def _round_floats(bb: BlockBuilder, data: Expr) -> Expr:
    """Round floats to the nearest integer, halves away from 0, as onnxruntime does for int4."""
    if not str(data.ty.dtype).startswith("float"):
        return data
    half = relax.const(0.5, str(data.ty.dtype))
    half_up, half_down = map(
        bb.normalize, (relax.op.floor(data + half), relax.op.ceil(data - half))
    )
    is_negative = data < relax.const(0, str(data.ty.dtype))
    return bb.normalize(relax.op.where(is_negative, half_down, half_up))


def _extract_low_bits(data: Expr, dtype: str) -> Expr:
    """Extract the low four bits of int8 as int4 or uint4."""
    low = relax.op.bitwise_and(data, relax.const(15, "int8"))
    if dtype == "uint4":
        return relax.op.astype(low, "uint8")
    sign = relax.const(8, "int8")
    return relax.op.bitwise_xor(low, sign) - sign


def _convert_to_integers(values: Array, dtype: str) -> Array:
    """Convert a constant of floats to integers as `convert_cast` does."""
    through = _THROUGH[dtype]
    least = float(np.iinfo(through).min)
    wide = values.astype("float64")
    inside = (wide >= least) & (wide < -least)
    return np.where(inside, wide, least).astype(through).astype(dtype)


OPERATORS: Final = (
    Operator(
        name="Cast",
        since=28,
        converter=convert_cast,
        compute_sizes=arithmetic.cast_numbers,
        size_dtype=arithmetic.cast_dtype,
        traits=Trait.FOLDABLE
        | Trait.KEEPS_WEIGHTS
        | Trait.COMPUTES_SIZES
        | Trait.EXACT_SPECIALS
        | Trait.KEEPS_VALUES,
    ),
    Operator(name="CastLike", since=25, traits=Trait.FOLDABLE),
)
