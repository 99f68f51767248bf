"""Bitwise operators."""

from typing import Final

import numpy as np
from tvm import relax, topi
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.reading.tensors import to_dtype_name
from autopipe.errors import ModelError

# ruff: noqa: ARG003  TVM's converters have one signature


class BitShift(onnx_frontend.BitShift):
    """BitShift that is defined for counts beyond the width of the dtype."""

    @classmethod
    def _impl_v11(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data, count = inputs
        dtype = np.dtype(str(data.ty.dtype))
        most = dtype.itemsize * 8 - 1
        constant_counts = operand_facts.read_values(count, params)
        if (
            constant_counts is not None
            and (constant_counts >= 0).all()
            and (constant_counts <= most).all()
        ):
            return super()._impl_v11(bb, inputs, attr, params)
        widest = relax.const(most, str(dtype))
        too_many = relax.op.greater(count, widest)
        if dtype.kind == "i":
            too_many = relax.op.logical_or(
                too_many, relax.op.less(count, relax.const(0, str(dtype)))
            )
        too_many = bb.normalize(too_many)
        count = bb.normalize(relax.op.where(too_many, widest, count))
        result = bb.normalize(super()._impl_v11(bb, [data, count], attr, params))
        if dtype.kind == "i" and attr["direction"] == b"RIGHT":
            return result  # by the width less 1: only the sign remains
        return bb.normalize(relax.op.where(too_many, relax.const(0, str(dtype)), result))


class BitCast(onnx_frontend.OnnxOpConverter):
    """BitCast: reinterpret the bits as another dtype of the same width."""

    @classmethod
    def _impl_v26(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        label = f"BitCast {operand_facts.quote_node_name(attr)}"
        source, result = str(inputs[0].ty.dtype), to_dtype_name(attr["to"], label)
        if result == "bool" or np.dtype(source).itemsize != np.dtype(result).itemsize:
            raise ModelError(f"{label} from {source} to {result} is not supported")
        if source == result:
            return inputs[0]
        if source == "bool":
            return relax.op.astype(inputs[0], result)
        return bb.emit_te(topi.reinterpret, inputs[0], result, primfunc_name_hint="bit_cast")


OPERATORS: Final = (
    Operator(name="BitCast", since=26, converter=BitCast),
    Operator(name="BitShift", since=28, converter=BitShift, traits=Trait.FOLDABLE),
    Operator(
        name="BitwiseAnd", since=18, converter=onnx_frontend.BitwiseAnd, traits=Trait.FOLDABLE
    ),
    Operator(
        name="BitwiseNot", since=18, converter=onnx_frontend.BitwiseNot, traits=Trait.FOLDABLE
    ),
    Operator(name="BitwiseOr", since=18, converter=onnx_frontend.BitwiseOr, traits=Trait.FOLDABLE),
    Operator(
        name="BitwiseXor", since=18, converter=onnx_frontend.BitwiseXor, traits=Trait.FOLDABLE
    ),
)
