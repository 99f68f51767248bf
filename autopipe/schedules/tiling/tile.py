"""The knobs of a tile, and every setting of them that fits the registers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.tiling.form import Contraction

_MAX_VECTORS: Final = 8
"""Most vectors in a row of a tile."""

_FETCH_DISTANCE: Final = 6 << 10
"""Bytes between the packed weights that are read and those that are fetched."""

_UNROLLED: Final = (1, 2, 3, 4)
"""Values of the knob `unroll` that are tried where they divide the innermost sum."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The knobs of a tile.

    Records of schedules hold their names and values: a renamed knob makes them useless.
    """

    rows: int
    """Outputs along the rows; the last tile overlaps the one before it."""
    columns: int
    """Outputs along the columns, a multiple of `width`; the last tile overlaps the one before it.
    With a packed operand they may be more than a group has: the surplus sums are not written."""
    width: int
    """Elements in a vector, a power of two: LLVM makes scalars of vectors of other lengths."""
    packed: bool
    """Whether the operand along the columns is read from a packed copy."""
    outer: Literal["rows", "columns"]
    """The outer loop over the tiles. "columns": all rows of one strip, then the next strip, so that
    the weights are read once; "rows": all strips of one band, so that the input is read once."""
    unroll: int
    """Steps of the innermost sum that are unrolled; divides its extent."""
    fetched: bool = False
    """Whether the memory that a tile writes is brought near while its sums are added."""
    ahead: int = 0
    """How many steps of the sum before they are read packed weights are fetched; 0: never."""
    shared_from: int | None = None
    """Steps of all sums from which threads share the tiles; None: as in `parallel_work.py`."""


def list_tiles(contraction: Contraction, hardware: HardwareParams) -> Iterator[Tile]:
    """Yield every tile that fits the registers."""
    for rows, columns, width, packed in _list_shapes(contraction, hardware):
        most = choose_fetch_distance(contraction, columns, hardware, packed=packed)
        for outer in list_orders(contraction, rows, columns):
            for unroll in _UNROLLED:
                if not contraction.terms[-1] % unroll:
                    for fetched in (False, True) if contraction.ordered else (False,):
                        for ahead in sorted({0, most}):
                            yield Tile(rows, columns, width, packed, outer, unroll, fetched, ahead)


def _list_shapes(
    contraction: Contraction, hardware: HardwareParams
) -> Iterator[tuple[int, int, int, bool]]:
    """Yield (rows, columns, width, packed) of every tile that fits the registers."""
    for packed in contraction.lines.packed:
        padded = packed and contraction.lines.alone
        lanes = hardware.lanes(contraction.bits)
        for width in _list_vector_widths(contraction.lines.granule, lanes, padded=padded):
            for rows, columns in list_sizes(contraction, hardware, width, padded=padded):
                yield rows, columns, width, packed


def choose_fetch_distance(
    contraction: Contraction, columns: int, hardware: HardwareParams, *, packed: bool
) -> int:
    """Return how many steps before they are read weights are fetched; 0 where nothing is gained.

    Example: a strip of 48 floats has 192 bytes a step, so those of step 40 are fetched in step 8.
    """
    if not (packed and contraction.lines.free and hardware.wants_prefetch):
        return 0
    return max(1, _FETCH_DISTANCE // (columns * contraction.bits // 8))


def list_sizes(
    contraction: Contraction, hardware: HardwareParams, width: int, *, padded: bool
) -> Iterator[tuple[int, int]]:
    """Yield (rows, columns) of every tile in vectors of `width` elements that fits the registers.

    The registers hold the sums, one row of weights and one broadcast value of the input. With 32
    registers and 2 vectors a row, 32 - 2 - 1 = 29 are left, so a tile has at most 14 rows. If it
    may be `padded`, it may have more columns than there are.
    """
    granule = contraction.lines.granule
    most = -(-granule // width) if padded else granule // width
    for columns in list_tile_sizes(granule, width, min(most, _MAX_VECTORS)):
        vectors = columns // width
        room = hardware.registers - vectors - 1  # a row of weights, a broadcast value
        most_rows = min(contraction.height, room // vectors)
        yield from ((rows, columns) for rows in list_tile_sizes(contraction.height, 1, most_rows))


def list_orders(
    contraction: Contraction, rows: int, columns: int
) -> tuple[Literal["columns", "rows"], ...]:
    """Return the orders of the loops over tiles; one where a side has a single tile."""
    has_both_orders = rows < contraction.height and columns < contraction.breadth
    return ("columns", "rows") if has_both_orders else ("columns",)


def _list_vector_widths(granule: int, lanes: int, *, padded: bool) -> list[int]:
    """Return the vector lengths that are worth trying, in elements: the longest one and its half.

    Example: 19 columns and 16 lanes give 8 and 16; 3 columns give 1 and 2, or, if the operand can
    be padded to whole vectors, 2 and 4.
    """
    most = 2 * granule - 1 if padded else granule
    powers = [1 << i for i in range(lanes.bit_length()) if 1 << i <= min(most, lanes)]
    return powers[-2:]


def list_tile_sizes(extent: int, step: int, most: int) -> list[int]:
    """Return the multiples of `step`, up to `step * most`, that cut an extent without waste.

    For each number of parts only the smallest size is kept. Example: 56 in parts of at most 14 is
    1 to 8, 10, 12 or 14: parts of 9 are 7 parts, and so are parts of 8.
    """
    by_parts = {-(-extent // (step * n)): step * n for n in range(most, 0, -1)}
    return sorted(by_parts.values())
