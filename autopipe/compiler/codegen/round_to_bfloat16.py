"""Lower casts to bfloat16 in a kernel to integer arithmetic, so that they do round.

TVM computes with bfloat16 in float32. It stores internal buffers of a kernel in float32, too, and
drops casts on the way to them, so that values between two blocks are not rounded. Here a cast
becomes arithmetic on bits (round to nearest, ties to even), and such buffers hold the bits:

    rounded = alloc_buffer([64], "bfloat16")       rounded = alloc_buffer([64], "uint16")
    rounded[i] = bfloat16(x[i])                    b = reinterpret(uint32, x[i])
                                                   rounded[i] = (b + 0x7FFF + (b >> 16 & 1)) >> 16
    y[i] = float32(rounded[i]) * w            ->   y[i] = float32(as_bfloat16(rounded[i])) * w

Parameters keep their dtype. NaN stays NaN, if it has no more bits set than processors and numpy
set.
"""

from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock

from autopipe.compiler.graph.arithmetic import build_let
from autopipe.compiler.loops.copy_loops import replace_variables

_SHORT: Final = "bfloat16"
_WIDE: Final = "float32"
_BITS: Final = "uint16"
_WIDE_BITS: Final = "uint32"
_ARITHMETIC: Final = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
_CHOICE: Final = "prim.if_then_else"
_REINTERPRET: Final = "tirx.reinterpret"


def round_to_bfloat16(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Round at each cast to bfloat16 of a kernel, and store its bfloat16 buffers as bits."""

    def loaded(load: TensorLoad) -> tvm.ir.Expr:
        if str(load.source.ty.dtype) != _BITS or not _is_short(load):
            return load
        read = tirx.BufferLoad(load.source, load.indices)
        return tirx.reinterpret(_match_lanes(_SHORT, load), read)

    def stored(store: tirx.BufferStore) -> tirx.Stmt:
        if str(store.buffer.ty.dtype) != _BITS or not _is_short(store.value):
            return store
        return tirx.BufferStore(store.buffer, _to_bits(store.value), store.indices)

    rounded_function = tvm_ffi.structural_map(function, (tirx.Cast, _expand_cast))
    rounded_function = replace_variables(rounded_function, _pair_local_buffers(function))
    return tvm_ffi.structural_map(
        rounded_function, [(TensorLoad, loaded), (tirx.BufferStore, stored)]
    )


def _pair_local_buffers(function: tirx.PrimFunc) -> list[tuple[tvm.ir.Var, tvm.ir.Var]]:
    """Return (bfloat16 buffer, uint16 buffer for its bits) of each buffer that is no parameter."""
    bit_buffers: list[tuple[tvm.ir.Var, tvm.ir.Var]] = []

    def add(buffer: tvm.ir.Var) -> None:
        if str(buffer.ty.dtype) == _SHORT:
            bit_buffers.append((buffer, _make_bit_buffer(buffer)))

    def look(block: SBlock) -> None:
        for buffer in block.alloc_buffers:
            add(buffer)

    def look_at_parts(block: SBlock) -> None:
        for part in block.match_buffers:
            if any(buffer.same_as(part.source.source) for buffer, _ in bit_buffers):
                add(part.buffer)

    tvm_ffi.structural_walk(function, (SBlock, look))
    tvm_ffi.structural_walk(function, (SBlock, look_at_parts))
    return bit_buffers


def _make_bit_buffer(buffer: tvm.ir.Var) -> tvm.ir.Var:
    """Return a uint16 buffer of the same layout for the bits of a bfloat16 buffer."""
    kind = buffer.ty
    return tirx.decl_buffer(
        kind.shape, _BITS, buffer.name, strides=kind.strides, elem_offset=kind.elem_offset,
        scope=buffer.scope(), data_alignment=kind.data_alignment, offset_factor=kind.offset_factor,
    )  # fmt: skip


def _to_bits(value: tvm.ir.Expr) -> tvm.ir.Expr:
    """Return the bits of a bfloat16 value; TVM would compute its arithmetic in float32."""
    name = getattr(getattr(value, "op", None), "name", "")
    kind = _match_lanes(_BITS, value)
    if name == _CHOICE:
        condition, on_true, on_false = value.args
        return tirx.if_then_else(condition, _to_bits(on_true), _to_bits(on_false))
    if name == _REINTERPRET and str(value.args[0].ty) == kind:
        return value.args[0]
    if isinstance(value, tirx.FloatImm) and float(value.value) == 0:
        return tirx.const(0, _BITS)
    if isinstance(value, TensorLoad) or name == _REINTERPRET:
        return tirx.reinterpret(kind, value)
    return _round_to_bits(tirx.Cast(_match_lanes(_WIDE, value), value))


def _expand_cast(cast: tirx.Cast) -> tvm.ir.Expr:
    """Expand a cast of float32 to the nearest bfloat16."""
    if not _is_short(cast) or not str(cast.value.ty).startswith(_WIDE):
        return cast
    return tirx.reinterpret(_match_lanes(_SHORT, cast), _round_to_bits(cast.value))


def _round_to_bits(value: tvm.ir.Expr) -> tvm.ir.Expr:
    """Return the bits of the nearest bfloat16 to a float32."""

    def nearest(bits: tvm.ir.Expr) -> tvm.ir.Expr:
        def same(value: int) -> tvm.ir.Expr:
            lanes = int(tvm.runtime.DataType(str(bits.ty)).lanes)
            number = tirx.const(value, _WIDE_BITS)
            return number if lanes == 1 else tirx.Broadcast(number, lanes)

        odd = tirx.bitwise_and(tirx.shift_right(bits, same(16)), same(1))
        upper = tirx.shift_right(bits + same(0x7FFF) + odd, same(16))
        return tirx.Cast(_match_lanes(_BITS, value), upper)

    bits = tirx.reinterpret(_match_lanes(_WIDE_BITS, value), value)
    return nearest(bits) if _has_bfloat16_math(value) else build_let(bits, nearest)


def _has_bfloat16_math(value: tvm.ir.Expr) -> bool:
    """Tell whether an expression computes with bfloat16. TVM does not widen operands of a let."""
    operations: list[object] = []

    def look(node: tvm.ir.Expr) -> None:
        operations.extend([node] if _is_short(node) else [])

    tvm_ffi.structural_walk(value, [(kind, look) for kind in _ARITHMETIC])
    return bool(operations)


def _is_short(value: tvm.ir.Expr) -> bool:
    return str(value.ty).startswith(_SHORT)


def _match_lanes(dtype: str, value: tvm.ir.Expr) -> str:
    """Return a dtype with as many lanes as a value has."""
    lanes = int(tvm.runtime.DataType(str(value.ty)).lanes)
    return dtype if lanes == 1 else f"{dtype}x{lanes}"
