"""AMX instructions: each adds a matmul of two int8 or bfloat16 tiles to a tile of accumulators.

A tile is a register of up to 16 rows of 64 bytes; there are eight. A row of the first operand has
`group` neighbours of the depth in each 32 bits. A row of the second has, for each of 16 columns,
the `group` elements that are multiplied with them: the packed layout of weights for `vpdpbusd`.

Example: `tdpbusd` with all rows, where `C` has 16 x 16 sums:

    for row, column in grid(16, 16):                                         # one instruction
        for k in range(64):
            C[row, column] += int32(A[row, k]) * int32(B[k // 4, column, k % 4])

See Intel's Intrinsics Guide and Software Developer's Manual, volume 2.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from autopipe.schedules.analysis.dot_products import Operands

ROWS: Final = 16
"""Maximum rows of a tile."""
ROW_BYTES: Final = 64
"""Maximum bytes in a row of a tile."""
WORDS: Final = 16
"""32-bit words in such a row, of `group` elements each."""
COLUMNS: Final = 16
"""Accumulators in a row of a tile: 32 bits each."""
REGISTERS: Final = 8
"""Number of tiles."""


@dataclass(frozen=True, slots=True)
class TileProduct:
    """An instruction of a processor, for operands of two dtypes."""

    name: str
    """Its mnemonic."""
    group: int
    """Elements of an operand in 32 bits."""
    sums: str
    """Dtype of the sums."""
    needs: frozenset[str]
    """The features that it requires, in LLVM's names."""

    def runs_on(self, features: Collection[str]) -> bool:
        """Tell whether a processor with these features has the instruction."""
        return self.needs.issubset(features)


_INT8: Final = frozenset({"amx-tile", "amx-int8"})
_BF16: Final = frozenset({"amx-tile", "amx-bf16"})

TILE_PRODUCTS: Final[Mapping[Operands, TileProduct]] = {
    ("uint8", "int8"): TileProduct("tdpbusd", 4, "int32", _INT8),
    ("int8", "int8"): TileProduct("tdpbssd", 4, "int32", _INT8),
    ("uint8", "uint8"): TileProduct("tdpbuud", 4, "int32", _INT8),
    ("int8", "uint8"): TileProduct("tdpbsud", 4, "int32", _INT8),
    ("bfloat16", "bfloat16"): TileProduct("tdpbf16ps", 2, "float32", _BF16),
}
"""By the dtypes of the row and of the weights."""
