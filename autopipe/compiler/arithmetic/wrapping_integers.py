"""Wrap-around of integer data on overflow, as in NumPy.

TVM's simplifier and LLVM assume that no integer of 32 or 64 bits overflows. That is right for
indices and wrong for data:

    x + 1 > x                   is simplified to true, and is false for the largest x
    x + 4294967295              of uint32: the bounds of the sum have one number in common with
                                those of uint32, so it is simplified to that number
    uint32(x) > 2147483647      is simplified to false, as x of int32 is at most that
    x == -2147483648            is simplified to false

So operands and results are hidden from the simplifier by a `reinterpret` to their own type, which
is no instruction. LLVM gets sums, differences and products in twice the bits, which it narrows to
the instruction for T without that assumption:

    reinterpret(T, x + reinterpret(T, c))       becomes       T(wide(x) + wide(c))

Sums of 8 and 16 bits need none of this. Importing this module replaces TVM's legalization of these
Relax ops.
"""

from functools import partial
from typing import Final

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi
from tvm.ir import Call, Expr, GenericConst, Op
from tvm.relax.transform.legalize_ops import binary, datatype

from autopipe.compiler.arithmetic.element_rewrites import Compute, Legalize, rewrite_elements

# ruff: noqa: SLF001  TVM's wrapper has no public name

_ARITHMETIC: Final = (tirx.Add, tirx.Sub, tirx.Mul)
_BITS: Final = {"int32": 32, "uint32": 32, "int64": 64, "uint64": 64}
"""Bits of the types that TVM assumes not to overflow."""
_INTEGERS: Final = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_COMPARISONS: Final = (tirx.EQ, tirx.NE, tirx.GT, tirx.GE, tirx.LT, tirx.LE)
_SAME_BITS: Final = "tirx.reinterpret"
_LOAD: Final = "te.tensor_load"
_LEVEL: Final = 11
"""Above that of TVM's own registration, which is 10."""


def hide_wrapping(value: tirx.Add | tirx.Sub | tirx.Mul) -> Expr:
    """Hide integer arithmetic from TVM's simplifier; keep any other."""
    if str(value.ty) not in _BITS:
        return value
    return _hide_value(type(value)(_hide_value(value.a), _hide_value(value.b)))


def hide_comparison(
    comparison: tirx.EQ | tirx.NE | tirx.GT | tirx.GE | tirx.LT | tirx.LE,
) -> Expr:
    """Hide both sides of an integer comparison from TVM's simplifier; keep any other."""
    if str(comparison.a.ty) not in _BITS:
        return comparison
    return type(comparison)(_hide_value(comparison.a), _hide_value(comparison.b))


def hide_cast(cast: tirx.Cast) -> Expr:
    """Hide a cast of integers that may overflow from TVM's simplifier; keep any other."""
    source, dtype = str(cast.value.ty), str(cast.ty)
    if not {source, dtype} <= _INTEGERS or np.can_cast(source, dtype):
        return cast
    return _hide_value(tirx.Cast(dtype, _hide_value(cast.value)))


def widen_wrapping(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Widen the hidden arithmetic of a kernel, so that LLVM assumes nothing about its range.

    A kernel of a GPU is returned as it is.
    """
    on_processor = function.attrs["target"].kind.name == "llvm"
    return tvm_ffi.structural_map(function, (Call, _widen_operation)) if on_processor else function


def _hide_value(value: Expr) -> Expr:
    if getattr(getattr(value, "op", None), "name", "") == _LOAD or _is_hidden(value):
        return value
    return Call(Op.get(_SAME_BITS), [value], ret_ty=value.ty)


def _is_hidden(value: Expr) -> bool:
    if not isinstance(value, Call) or getattr(value.op, "name", "") != _SAME_BITS:
        return False
    return str(value.args[0].ty) == str(value.ty)


def _widen_operation(call: Call) -> Expr:
    dtype = str(call.ty)
    if not _is_hidden(call) or not isinstance(call.args[0], _ARITHMETIC) or dtype not in _BITS:
        return call
    narrow, wide = (f"uint{times * _BITS[dtype]}" for times in (1, 2))
    operation = call.args[0]

    left, right = (_to_unsigned(operand, narrow) for operand in (operation.a, operation.b))
    if isinstance(operation, tirx.Sub):  # of unsigned ones, none may be below 0
        left = tirx.Cast(wide, left) + tirx.const(1, wide)
        result = left + tirx.Cast(wide, tirx.bitwise_not(right))
    else:
        result = type(operation)(tirx.Cast(wide, left), tirx.Cast(wide, right))
    return _hide_value(tirx.reinterpret(dtype, tirx.Cast(narrow, result)))


def _to_unsigned(operand: Expr, dtype: str) -> Expr:
    """Reinterpret an operand as an unsigned integer; TVM cannot reinterpret a literal 0."""
    if _is_hidden(operand) and isinstance(operand.args[0], tirx.IntImm):
        return _hide_value(tirx.const(int(operand.args[0]) % (1 << _BITS[dtype]), dtype))
    return tirx.reinterpret(dtype, operand)


def _legalize_unary(
    compute: Compute, name: str, builder: relax.BlockBuilder, call: relax.Call
) -> relax.Expr:
    return builder.call_te(compute, *call.args, primfunc_name_hint=name)


def _legalize_cast(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    (data,), dtype = call.args, str(call.attrs.dtype)
    if isinstance(data, GenericConst) and {str(data.ty.dtype), dtype} <= _INTEGERS:
        return relax.const(data.value.numpy().astype(dtype), dtype)
    if isinstance(data, GenericConst):
        return datatype._astype(builder, call)
    return builder.call_te(rewrite_elements(topi.cast, [tirx.Cast], hide_cast), data, dtype)


def _square_tensor(data: te.Tensor) -> te.Tensor:
    return topi.multiply(data, data)


def _register_legalizer(name: str, legalize: Legalize) -> None:
    tvm.ir.register_op_attr(f"relax.{name}", "FLegalize", legalize, _LEVEL)


for _compute in (topi.add, topi.subtract, topi.multiply):
    _hidden = rewrite_elements(_compute, _ARITHMETIC, hide_wrapping)
    _register_legalizer(_compute.__name__, binary._binary(_hidden))
for _compute in (
    topi.equal, topi.not_equal, topi.greater, topi.greater_equal, topi.less, topi.less_equal
):  # fmt: skip
    _hidden = rewrite_elements(_compute, _COMPARISONS, hide_comparison)
    _register_legalizer(_compute.__name__, binary._binary(_hidden))
for _name, _compute in (("abs", topi.abs), ("negative", topi.negative), ("square", _square_tensor)):
    _hidden = rewrite_elements(_compute, _ARITHMETIC, hide_wrapping)
    _register_legalizer(_name, partial(_legalize_unary, _hidden, f"tir_{_name}"))
_register_legalizer("astype", _legalize_cast)
