"""Pass bfloat16 operands to the dot products of AVX512-BF16, as LLVM declares them.

TVM computes with bfloat16 in float32, and its code generation has no such type: nothing in TIR can
call `vdpbf16ps` as LLVM declares it. So schedules pass the bits, a pair of numbers in each int32,
and as the last step before code generation each such call becomes one of a function in LLVM IR that
casts them to bfloat16. TVM links that in, and LLVM inlines it:

    llvm.x86.avx512bf16.dpbf16ps.512(sums, row, weights)    # row, weights: int32x16
    autopipe_dpbf16ps_512(sums, row, weights)               # vdpbf16ps zmm, zmm, zmm

The IR is a constant of this file. Modules that bring IR of their own are refused before.
"""

from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.target import codegen

DOT_PRODUCTS: Final = {f"llvm.x86.avx512bf16.dpbf16ps.{bits}": bits for bits in (512, 256, 128)}
"""LLVM's names of the instructions, which add the products of two pairs to each sum, with the size
of their registers in bits."""

PRODUCTS: Final = "avx512bf16"
"""LLVM's name of the processor feature that provides them."""

_IMPORT: Final = "pragma_import_llvm"
_CALLS: Final = "tirx.call_llvm_pure_intrin"

_BODY: Final = """
define <{lanes} x float> @autopipe_dpbf16ps_{bits}(
    <{lanes} x float> %sums, <{lanes} x i32> %row, <{lanes} x i32> %weights) {{
  %a = bitcast <{lanes} x i32> %row to <{halves} x bfloat>
  %b = bitcast <{lanes} x i32> %weights to <{halves} x bfloat>
  %new = call <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
      <{lanes} x float> %sums, <{halves} x bfloat> %a, <{halves} x bfloat> %b)
  ret <{lanes} x float> %new
}}
declare <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
    <{lanes} x float>, <{halves} x bfloat>, <{halves} x bfloat>)
"""


def type_bfloat16_operands(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace the bfloat16 dot products of a kernel by calls of LLVM functions that type them."""
    numbers = {codegen.llvm_lookup_intrinsic_id(name): bits for name, bits in DOT_PRODUCTS.items()}
    register_bits = dict[int, None]()

    def changed(call: tvm.ir.Call) -> tvm.ir.Expr:
        bits = _find_dot_bits(call, numbers)
        if bits is None:
            return call
        register_bits[bits] = None
        return tirx.call_extern(call.ty, f"autopipe_dpbf16ps_{bits}", *call.args[1:])

    typed_function = tvm_ffi.structural_map(function, (tvm.ir.Call, changed))
    body = typed_function.body
    for bits in sorted(register_bits):
        text = _BODY.format(bits=bits, lanes=bits // 32, halves=bits // 16)
        body = tirx.AttrStmt(tirx.const(0, "int32"), _IMPORT, tvm.ir.StringImm(text), body)
    return typed_function.with_body(body) if register_bits else typed_function


def _find_dot_bits(call: tvm.ir.Call, numbers: dict[int, int]) -> int | None:
    """Return the register size, in bits, of the dot product that an expression calls, or None."""
    if getattr(call.op, "name", "") != _CALLS:
        return None
    return numbers.get(int(call.args[0]))
