"""Dot-product instructions: each adds int8 or bfloat16 products to a vector of accumulators.

Each multiplies `group` neighbours of a row by a tile of `lanes` x `group` weights.

Example: `vpdpbusd` of AVX512-VNNI, with 512 bits, has 16 lanes and groups of 4:

    for i in range(16):                                # one instruction
        for k in range(4):
            C[i] += int32(A[k]) * int32(B[i, k])       # A: uint8, B: int8, C: int32

It requires a uint8 row. An int8 row is shifted by 128 (the top bit of each element flips), which
adds 128 * (B[i, 0] + ... + B[i, 3]) to each sum, and that is subtracted again. LLVM hoists this
correction out of the rows of a tile. `pmaddwd` multiplies int16 and adds two products; it needs a
further instruction to accumulate. The row is stored as int16 then, converted beforehand: in the
loop the conversion takes four instructions for each two elements. `vdpbf16ps` multiplies bfloat16,
which is exact in float32, and adds two products to float32 sums: first that of the odd elements,
then that of the even ones. It treats denormal numbers as zeros.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from tvm import tirx
from tvm.ir import Expr

from autopipe.compiler.codegen.type_bfloat16_operands import DOT_PRODUCTS

Operands = tuple[str, str]
"""Dtypes of the row and of the weights."""

Needs = tuple[frozenset[str], ...]
"""Alternative sets of features; a processor must have all features of one set."""


def _parse_features(*alternatives: str) -> Needs:
    """Parse alternative sets of features such as "avx512vnni+avx512vl"."""
    return tuple(frozenset(alternative.split("+")) for alternative in alternatives)


_VNNI: Final = _parse_features("avx512vnni")
_AVX_VNNI: Final = _parse_features("avx512vnni+avx512vl", "avxvnni")
_DOTPROD: Final = _parse_features("dotprod")
_BF16: Final = _parse_features("avx512bf16")
_BF16_PARTS: Final = _parse_features("avx512bf16+avx512vl")
_WHOLE: Final = 512
"""Bits of AVX-512 registers; instructions on shorter ones need further features."""

_FOURS: Final = (
    ("vpdpbusd", 512, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.512", _VNNI),
    ("vpdpbusd", 256, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.256", _AVX_VNNI),
    ("vpdpbusd", 128, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.128", _AVX_VNNI),
    ("usdot", 128, "uint8", "int8", "llvm.aarch64.neon.usdot", _parse_features("i8mm")),
    ("sdot", 128, "int8", "int8", "llvm.aarch64.neon.sdot", _DOTPROD),
    ("udot", 128, "uint8", "uint8", "llvm.aarch64.neon.udot", _DOTPROD),
)
"""Instructions that add four int8 products: name, bits, operands, LLVM's name, needs."""

_PAIRS: Final = (
    ("vpmaddwd", 512, "llvm.x86.avx512.pmaddw.d.512", _parse_features("avx512bw")),
    ("vpmaddwd", 256, "llvm.x86.avx2.pmadd.wd", _parse_features("avx2")),
    ("pmaddwd", 128, "llvm.x86.sse2.pmadd.wd", _parse_features("sse2")),
)
"""Instructions that multiply int8 widened to int16, and add two products."""

_WORDS: Final = "int16"
_HALF: Final = "bfloat16"

_FLIP: Final = -0x7F7F7F80
"""The 32 bits 0x80808080: four uint8 of 128, or int8 of -128."""


@dataclass(frozen=True, slots=True)
class DotProduct:
    """An instruction of a processor, for operands of two dtypes."""

    name: str
    """Its mnemonic, as the knobs name it."""
    lanes: int
    """Number of sums, of 32 bits each."""
    group: int
    """Number of products that are added to each sum."""
    cost: int
    """Number of instructions, including those that prepare operands."""
    needs: Needs
    """The features that it requires, in LLVM's names."""
    operands: Operands
    llvm: str
    """LLVM's name of the intrinsic."""
    add: Callable[["DotProduct", Expr, Expr, Expr], Expr]
    """Builds the new sums from the instruction, sums, the bits of a row, and weights."""
    row: str
    """Dtype in which the row is stored: that of the operand, or a wider one."""
    sums: str = "int32"
    """Dtype of the sums."""

    def runs_on(self, features: Collection[str]) -> bool:
        """Tell whether a processor with these features has the instruction."""
        return any(needs.issubset(features) for needs in self.needs)

    def added(self, sums: Expr, row: Expr, weights: Expr) -> Expr:
        """Return the new sums of all lanes.

        `row` holds a group of the row, as the bits of an int32; `weights` those of all lanes,
        [lanes, group] as one vector.
        """
        return self.add(self, sums, row, weights)

    def every(self, value: Expr) -> Expr:
        """Broadcast a value to all lanes."""
        return tirx.Broadcast(value, self.lanes)

    def called(self, *arguments: Expr) -> Expr:
        """Return a call of the instruction."""
        return tirx.call_llvm_pure_intrin(f"{self.sums}x{self.lanes}", self.llvm, *arguments)


def _add_int8_products(dot: DotProduct, sums: Expr, row: Expr, weights: Expr) -> Expr:
    """Add four int8 products to each sum."""
    bytes_ = f"int8x{4 * dot.lanes}"
    return dot.called(
        sums, _reinterpret_as(dot.every(row), bytes_), _reinterpret_as(weights, bytes_)
    )


def _add_shifted_products(dot: DotProduct, sums: Expr, row: Expr, weights: Expr) -> Expr:
    """Add four int8 products to each sum, with the row shifted by 128 and a correction.

    The row is shifted before it is broadcast: if shifted after it, LLVM 22 does not terminate.
    """
    flip, zeros = tirx.const(_FLIP, "int32"), dot.every(tirx.const(0, "int32"))
    return _add_int8_products(
        dot, sums - _add_int8_products(dot, zeros, flip, weights), row ^ flip, weights
    )


def _add_int16_products(dot: DotProduct, sums: Expr, row: Expr, weights: Expr) -> Expr:
    """Add two int16 products to each sum."""
    words = f"int16x{2 * dot.lanes}"
    return sums + dot.called(_reinterpret_as(dot.every(row), words), weights.astype(words))


def _add_bfloat16_products(dot: DotProduct, sums: Expr, row: Expr, weights: Expr) -> Expr:
    """Add two bfloat16 products to each sum.

    The pairs are passed as bits, see `type_bfloat16_operands`.
    """
    return dot.called(sums, dot.every(row), _reinterpret_as(weights, f"int32x{dot.lanes}"))


def _reinterpret_as(value: Expr, dtype: str) -> Expr:
    """Reinterpret the bits of a value as another dtype."""
    return value if str(value.ty.dtype) == dtype else tirx.reinterpret(dtype, value)


def list_dot_products(operands: Operands) -> Iterator[DotProduct]:
    """Yield every instruction for operands of these dtypes, of all processors."""
    if operands == (_HALF, _HALF):
        yield from _list_bfloat16_products()
        return
    for name, bits, row, weights, llvm, needs in _FOURS:
        if weights == operands[1]:
            add, cost = (
                (_add_shifted_products, 2) if row != operands[0] else (_add_int8_products, 1)
            )
            yield DotProduct(name, bits // 32, 4, cost, needs, operands, llvm, add, operands[0])
    for name, bits, llvm, needs in _PAIRS:
        yield DotProduct(name, bits // 32, 2, 2, needs, operands, llvm, _add_int16_products, _WORDS)


def _list_bfloat16_products() -> Iterator[DotProduct]:
    """Yield every instruction that multiplies bfloat16."""
    for llvm in DOT_PRODUCTS:
        bits = int(llvm.rpartition(".")[2])
        needs = _BF16 if bits == _WHOLE else _BF16_PARTS
        yield DotProduct("vdpbf16ps", bits // 32, 2, 1, needs, (_HALF, _HALF), llvm,
                         _add_bfloat16_products, _HALF, "float32")  # fmt: skip


def find_instruction(name: str, lanes: int, operands: Operands) -> DotProduct:
    """Return the instruction of a name and a number of lanes. Raises StopIteration if unknown."""
    return next(
        dot for dot in list_dot_products(operands) if (dot.name, dot.lanes) == (name, lanes)
    )
