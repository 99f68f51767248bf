"""Assigns the AMX tile registers of a block to sums, input and weights.

The first ones hold sums. Of the input and the weights, the operand with a single tile keeps its
register, and the tiles of the other alternate between the rest: a load waits for no product. With
several tiles of both, all tiles of the input are kept.

Example: 2 tiles of the input by 2 of the weights are sums in 0 to 3, the input in 4 and 5, weights
in 6 and 7. For 4 tiles by 1 the input alternates between 4, 5 and 6, and 7 has the weights.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

from autopipe.schedules.analysis.tile_products import REGISTERS, ROW_BYTES, ROWS

_PALETTE: Final = 1
"""The only one there is: eight registers of 16 rows of 64 bytes."""
_CONFIGURATION_BYTES: Final = 64
"""Bytes of a configuration."""
_WIDTHS: Final = 16
"""Where the bytes of a row of each register begin, two bytes each."""
_HEIGHTS: Final = 48
"""Where the rows of each register begin, a byte each."""


@dataclass(frozen=True, slots=True)
class Strip:
    """Rows of the input that fill one tile: neighbours from a pixel on."""

    line: int
    pixel: int
    rows: int


@dataclass(frozen=True, slots=True)
class Registers:
    """The registers of a block."""

    strips: tuple[Strip, ...]
    """What each tile of the input holds; only the last may be lower than the others."""
    vectors: int
    """Tiles of weights beside each other."""

    @property
    def fit(self) -> bool:
        """Whether the registers suffice."""
        return self._count_free_registers() >= (
            1 + self._has_short_last_strip() if self.vectors == 1 else len(self.strips)
        )

    def sums(self, strip: int, vector: int) -> int:
        """Return the register of the sums of two tiles."""
        return strip * self.vectors + vector

    def given(self, strip: int) -> int:
        """Return the register of a tile of the input."""
        first, turns = len(self.strips) * self.vectors, self._count_input_registers()
        if self._has_short_last_strip() and strip == len(self.strips) - 1:
            return first + turns - 1
        return first + strip % (turns - self._has_short_last_strip())

    def weights(self, vector: int) -> int:
        """Return the register of a tile of the weights."""
        first = len(self.strips) * self.vectors + self._count_input_registers()
        return first + vector % (REGISTERS - first)

    def configuration(self, width: int) -> bytes:
        """Return the configuration of the tile registers; `width` is bytes of a row of input.

        The layout is that of LDTILECFG in Intel's Software Developer's Manual, volume 2.
        """
        image = bytearray(_CONFIGURATION_BYTES)
        image[0] = _PALETTE
        for register, height, bytes_ in self._list_register_shapes(width):
            at = _WIDTHS + 2 * register
            image[at : at + 2] = bytes_.to_bytes(2, "little")
            image[_HEIGHTS + register] = height
        return bytes(image)

    def _list_register_shapes(self, width: int) -> Iterator[tuple[int, int, int]]:
        for (at, strip), vector in product(enumerate(self.strips), range(self.vectors)):
            yield self.sums(at, vector), strip.rows, ROW_BYTES
        for at, strip in enumerate(self.strips):
            yield self.given(at), strip.rows, width
        for vector in range(self.vectors):
            yield self.weights(vector), width // 4, ROW_BYTES

    def _has_short_last_strip(self) -> bool:
        """Tell whether the last tile of the input has fewer rows, and so a register of its own."""
        return self.strips[-1].rows != self.strips[0].rows

    def _count_free_registers(self) -> int:
        """Count the registers that hold no sums, without one for weights."""
        return REGISTERS - len(self.strips) * self.vectors - 1

    def _count_input_registers(self) -> int:
        """Count the registers that hold tiles of the input."""
        return min(len(self.strips), self._count_free_registers())


def split_into_strips(lines: int, pixels: int, pitch: int | None) -> tuple[Strip, ...] | None:
    """Split lines of pixels into tiles; None where several lines have no equal parts that fit.

    With a `pitch`, the pixels from a line to the next, tiles run over the ends of lines; all but
    the last have 16 rows. The last tile of a single line may have fewer: 27 pixels are 14 and 13.
    """
    if pitch is not None:
        rows = (lines - 1) * pitch + pixels
        starts = range(0, rows, ROWS)
        return tuple(Strip(at // pitch, at % pitch, min(ROWS, rows - at)) for at in starts)
    parts = math.ceil(pixels / ROWS)
    if lines > 1 and pixels % parts:
        return None
    rows = math.ceil(pixels / parts)
    places = product(range(lines), range(0, pixels, rows))
    return tuple(Strip(line, at, min(rows, pixels - at)) for line, at in places)
