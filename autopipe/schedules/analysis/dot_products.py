"""Dot-product instructions of processors: each adds a few short products to a vector of sums.

Each becomes a TIR tensor intrinsic that multiplies `group` neighbours of a row by a tile of
`lanes` x `group` weights.

Example: `vpdpbusd` of AVX512-VNNI, with 512 bits, has 16 lanes and groups of 4:

    for i in range(16):                                # one instruction
        for k in range(4):
            C[i] += int32(A[k]) * int32(B[i, k])       # A: uint8, B: int8, C: int32

It wants an unsigned row. A signed row is moved by 128 (the top bit of each byte flips), which adds
128 * (B[i, 0] + ... + B[i, 3]) to each sum, and that is subtracted again. LLVM computes this part
once for all rows of a tile. `pmaddwd` multiplies words of 16 bits and adds two products; it needs a
further instruction to add to the sums. The row comes as words then, made of all bytes beforehand:
in the loop that takes four instructions for each two bytes. `vdpbf16ps` multiplies numbers of
bfloat16, which is exact in float32, and adds two products to sums in float32: first that of the
odd elements, then that of the even ones. It takes denormal numbers for zeros.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import TensorIntrin
from tvm.script import from_source

from autopipe.compiler.bfloat16_operands import DOT_PRODUCTS
from autopipe.compiler.call_stack import unread

Operands = tuple[str, str]
"""Dtypes of the row and of the weights."""

Needs = tuple[frozenset[str], ...]
"""Sets of features; a processor needs all features of one of them."""


def _needs(*alternatives: str) -> Needs:
    """Return the sets of features of alternatives such as "avx512vnni+avx512vl"."""
    return tuple(frozenset(alternative.split("+")) for alternative in alternatives)


_VNNI: Final = _needs("avx512vnni")
_AVX_VNNI: Final = _needs("avx512vnni+avx512vl", "avxvnni")
_DOTPROD: Final = _needs("dotprod")
_BF16: Final = _needs("avx512bf16")
_BF16_PARTS: Final = _needs("avx512bf16+avx512vl")
_WHOLE: Final = 512
"""Bits of the registers that AVX-512 adds; what works on a part of one needs more."""

_FOURS: Final = (
    ("vpdpbusd", 512, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.512", _VNNI),
    ("vpdpbusd", 256, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.256", _AVX_VNNI),
    ("vpdpbusd", 128, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.128", _AVX_VNNI),
    ("usdot", 128, "uint8", "int8", "llvm.aarch64.neon.usdot", _needs("i8mm")),
    ("sdot", 128, "int8", "int8", "llvm.aarch64.neon.sdot", _DOTPROD),
    ("udot", 128, "uint8", "uint8", "llvm.aarch64.neon.udot", _DOTPROD),
)
"""Instructions that add four products of bytes: name, bits, operands, LLVM's name, needs."""

_PAIRS: Final = (
    ("vpmaddwd", 512, "llvm.x86.avx512.pmaddw.d.512", _needs("avx512bw")),
    ("vpmaddwd", 256, "llvm.x86.avx2.pmadd.wd", _needs("avx2")),
    ("pmaddwd", 128, "llvm.x86.sse2.pmadd.wd", _needs("sse2")),
)
"""Instructions that multiply bytes widened to 16 bits, and add two products."""

_FRAME: Final = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def intrinsic(
    A: T.Buffer(({group},), "{row}", offset_factor=1),
    B: T.Buffer(({lanes}, {group}), "{weights}", offset_factor=1),
    C: T.Buffer(({lanes},), "{sums}", offset_factor=1, scope="local"),
) -> None:
    with T.sblock("root"):
        T.reads(C[0:{lanes}], A[0:{group}], B[0:{lanes}, 0:{group}])
        T.writes(C[0:{lanes}])
"""

_MEANING: Final = (
    _FRAME
    + """
        for i, k in T.grid({lanes}, {group}):
            with T.sblock("update"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + T.cast({value}, "{sums}") * T.cast(B[vi, vk], "{sums}")
"""
)

_CODE: Final = (
    _FRAME
    + """
        C[T.ramp(0, 1, {lanes})] = {code}
"""
)

_WORDS: Final = "int16"
_HALF: Final = "bfloat16"

_FLIP: Final = -0x7F7F7F80
"""The 32 bits 0x80808080: four bytes that are 128, or -128 if bytes are signed."""


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
    """Number of instructions that it takes, with those around it."""
    needs: Needs
    """The features, in LLVM's names, with which a processor has it."""
    operands: Operands
    llvm: str
    """LLVM's name of it."""
    code: str
    """The new sums, as an expression of TVMScript."""
    row: str
    """Dtype that the row is stored in: that of the operand, or a wider one."""
    sums: str = "int32"
    """Dtype of the sums."""

    def runs_on(self, features: Collection[str]) -> bool:
        """Tell whether a processor with these features has it."""
        return any(needs.issubset(features) for needs in self.needs)

    def added(self, sums: Expr, row: Expr, weights: Expr) -> Expr:
        """Return the new sums, for operands that the instruction takes as they are.

        `row` has the bytes of a group as an int32, `weights` those of all lanes as a vector.
        """
        row = tirx.reinterpret(f"int8x{self.group * self.lanes}", tirx.Broadcast(row, self.lanes))
        return tirx.call_llvm_pure_intrin(f"int32x{self.lanes}", self.llvm, sums, row, weights)

    def register(self) -> str:
        """Register it as a tensor intrinsic of TVM, unless it is, and return its name there."""
        name = f"autopipe.{self.name}.{'.'.join(self.operands)}.{self.lanes}"
        if TensorIntrin.get(name, allow_missing=True) is None:
            given, weights = self.operands
            value = "A[vk]" if self.row == given else f'T.cast(A[vk], "{given}")'
            size = {"lanes": self.lanes, "group": self.group, "row": self.row, "weights": weights,
                    "value": value, "sums": self.sums}  # fmt: skip
            meaning, code = _MEANING.format(**size), _CODE.format(**size, code=self.code)
            with unread():
                TensorIntrin.register(name, from_source(meaning), from_source(code))
        return name


def dot_products(operands: Operands) -> Iterator[DotProduct]:
    """Yield every instruction for operands of these dtypes, whatever processors have it."""
    if operands == (_HALF, _HALF):
        yield from _of_halves()
        return
    for name, bits, row, weights, llvm, needs in _FOURS:
        if weights == operands[1]:
            moved = row != operands[0]
            code = _four(llvm, bits // 32, operands, moved=moved)
            cost, given = 2 if moved else 1, operands[0]
            yield DotProduct(name, bits // 32, 4, cost, needs, operands, llvm, code, given)
    for name, bits, llvm, needs in _PAIRS:
        code = _pair(llvm, bits // 32, operands)
        yield DotProduct(name, bits // 32, 2, 2, needs, operands, llvm, code, _WORDS)


def _of_halves() -> Iterator[DotProduct]:
    """Yield every instruction that multiplies numbers of bfloat16."""
    for llvm in DOT_PRODUCTS:
        bits = int(llvm.rpartition(".")[2])
        needs = _BF16 if bits == _WHOLE else _BF16_PARTS
        code = _halves(llvm, bits // 32)
        yield DotProduct("vdpbf16ps", bits // 32, 2, 1, needs, (_HALF, _HALF), llvm, code, _HALF,
                         "float32")  # fmt: skip


def instruction(name: str, lanes: int, operands: Operands) -> DotProduct:
    """Return the instruction of a name and a number of lanes. Raises StopIteration for another."""
    return next(dot for dot in dot_products(operands) if (dot.name, dot.lanes) == (name, lanes))


def _four(llvm: str, lanes: int, operands: Operands, *, moved: bool) -> str:
    """Return TVMScript of new sums by an instruction of four products; `moved` flips signs."""
    bytes_ = f"int8x{4 * lanes}"
    weights = _as(f'B.vload([0, 0], "{operands[1]}x{4 * lanes}")', bytes_)
    row = _as(f'A.vload([0], "{operands[0]}x4")', "int32")
    sums = f'C.vload([0], "int32x{lanes}")'
    if moved:
        row = f"T.bitwise_xor({row}, T.int32({_FLIP}))"
        flip = _as(_all(f"T.int32({_FLIP})", lanes), bytes_)
        zeros = _all("T.int32(0)", lanes)
        sums = f"{sums} - {_call(llvm, lanes, zeros, flip, weights)}"
    return _call(llvm, lanes, sums, _as(_all(row, lanes), bytes_), weights)


def _pair(llvm: str, lanes: int, operands: Operands) -> str:
    """Return TVMScript of new sums by an instruction of two products of words."""
    words = f"int16x{2 * lanes}"
    weights = f'T.Cast("{words}", B.vload([0, 0], "{operands[1]}x{2 * lanes}"))'
    row = _as(f'A.vload([0], "{_WORDS}x2")', "int32")
    products = _call(llvm, lanes, _as(_all(row, lanes), words), weights)
    return f'C.vload([0], "int32x{lanes}") + {products}'


def _halves(llvm: str, lanes: int) -> str:
    """Return TVMScript of new sums by an instruction of two products of bfloat16.

    The pairs are handed over as bits, see `bfloat16_operands`.
    """
    weights = _as(f'B.vload([0, 0], "{_HALF}x{2 * lanes}")', f"int32x{lanes}")
    row = _all(_as(f'A.vload([0], "{_HALF}x2")', "int32"), lanes)
    return _call(llvm, lanes, f'C.vload([0], "float32x{lanes}")', row, weights, sums="float32")


def _call(llvm: str, lanes: int, *arguments: str, sums: str = "int32") -> str:
    call = f'T.call_llvm_pure_intrin(T.llvm_lookup_intrinsic_id("{llvm}")'
    return f'{call}, {", ".join(arguments)}, dtype="{sums}x{lanes}")'


def _as(value: str, dtype: str) -> str:
    """Return TVMScript of the same bits as another dtype."""
    return f'T.reinterpret({value}, dtype="{dtype}")'


def _all(value: str, lanes: int) -> str:
    """Return TVMScript of a vector whose lanes are all one value."""
    return f"T.broadcast({value}, {lanes})"
