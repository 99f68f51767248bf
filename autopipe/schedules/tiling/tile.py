"""The knobs of a tile, and every setting of them that is possible."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from autopipe.schedules.hardware import Hardware
from autopipe.schedules.tiling.form import Contraction

MAX_VECTORS: Final = 8
"""Vectors in a row of a tile."""

_NARROW: Final = 4
"""How much narrower than a register a vector may be."""

_UNROLLED: Final = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Tile:
    """The knobs."""

    rows: int
    """Outputs along the rows; the last tile overlaps the one before it."""
    columns: int
    """Outputs along the columns, in whole vectors; the last tile overlaps the one before it. More
    than there are, if the operand is packed: what is too much is left behind in the registers."""
    width: int
    """Elements in a vector, a power of two. LLVM makes scalars of others."""
    packed: bool
    """Whether the operand along the columns is read from a copy in the order of the tiles."""
    outer: Literal["rows", "columns"]
    """What is gone through once: the operand of the rows or that of the columns."""
    unroll: int
    """Steps of the innermost sum that are written out."""


def settings(found: Contraction, hardware: Hardware) -> Iterator[Tile]:
    """Yield every tile that fits the registers."""
    for rows, columns, width, packed in shapes(found, hardware):
        many = rows < found.height and columns < found.breadth
        for outer in ("columns", "rows") if many else ("columns",):
            for unroll in _UNROLLED:
                if not found.terms[-1] % unroll:
                    yield Tile(rows, columns, width, packed, outer, unroll)


def shapes(found: Contraction, hardware: Hardware) -> Iterator[tuple[int, int, int, bool]]:
    """Yield rows, columns, width and packing of every tile that fits the registers."""
    lanes, granule = hardware.lanes(found.bits), found.lines.granule
    for packed in found.lines.packed:
        padded = packed and found.lines.alone
        for width in _widths(granule, lanes, padded=padded):
            most = -(-granule // width) if padded else granule // width
            for columns in _sizes(granule, width, min(most, MAX_VECTORS)):
                vectors = columns // width
                room = hardware.registers - vectors - 1  # a row of weights, a broadcast value
                for rows in _sizes(found.height, 1, min(found.height, room // vectors)):
                    yield rows, columns, width, packed


def _widths(granule: int, lanes: int, *, padded: bool) -> list[int]:
    """Return the lengths of vectors worth a try: none that could be half as long."""
    most = 2 * granule - 1 if padded else granule
    powers = [1 << i for i in range(lanes.bit_length()) if 1 << i <= min(most, lanes)]
    return [width for width in powers if width * _NARROW >= powers[-1]]


def _sizes(extent: int, step: int, most: int) -> list[int]:
    """Return the steps' multiples that cut an extent into parts, the least for each number."""
    sizes = {-(-extent // (step * n)): step * n for n in range(most, 0, -1)}
    return sorted(sizes.values())
