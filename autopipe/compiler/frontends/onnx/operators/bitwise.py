"""Bitwise operators."""

from typing import Final

import numpy as np
from tvm import relax, topi
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.reading.tensors import to_dtype_name
from autopipe.errors import ModelError


def convert_bit_shift(site: NodeSite) -> Expr:
    """Convert BitShift that is defined for counts beyond the width of the dtype."""
    bb = site.bb
    data, count = site.inputs
    dtype = np.dtype(str(data.ty.dtype))
    most = dtype.itemsize * 8 - 1
    counts = site.read_values(1)
    if counts is not None and ((counts >= 0) & (counts <= most)).all():
        return site.convert_by_tvm()
    widest = relax.const(most, str(dtype))
    too_many = count > widest
    if dtype.kind == "i":
        too_many = relax.op.logical_or(too_many, count < relax.const(0, str(dtype)))
    too_many = bb.normalize(too_many)
    count = bb.normalize(relax.op.where(too_many, widest, count))
    result = site.convert_by_tvm(inputs=[data, count])
    if dtype.kind == "i" and site.attr["direction"] == b"RIGHT":
        return result  # by the width less 1: only the sign remains
    return relax.op.where(too_many, relax.const(0, str(dtype)), result)


def convert_bit_cast(site: NodeSite) -> Expr:
    """Convert BitCast: reinterpret the bits as another dtype of the same width."""
    label = site.label
    source, result = str(site.inputs[0].ty.dtype), to_dtype_name(site.attr["to"], label)
    if result == "bool" or np.dtype(source).itemsize != np.dtype(result).itemsize:
        raise ModelError(f"{label} from {source} to {result} is not supported")
    if source == result:
        return site.inputs[0]
    if source == "bool":
        return relax.op.astype(site.inputs[0], result)
    return site.bb.emit_te(topi.reinterpret, site.inputs[0], result, primfunc_name_hint="bit_cast")


OPERATORS: Final = (
    Operator(name="BitCast", since=26, converter=convert_bit_cast),
    Operator(name="BitShift", since=28, converter=convert_bit_shift, traits=Trait.FOLDABLE),
    Operator(name="BitwiseAnd", since=18, traits=Trait.FOLDABLE),
    Operator(name="BitwiseNot", since=18, traits=Trait.FOLDABLE),
    Operator(name="BitwiseOr", since=18, traits=Trait.FOLDABLE),
    Operator(name="BitwiseXor", since=18, traits=Trait.FOLDABLE),
)
