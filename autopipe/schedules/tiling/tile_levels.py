"""The tiles of a sum of products at every size of a function with dynamic shapes.

A tile fits if its rows and columns are no more than those of the result. So the loops of smaller
tiles follow, each behind a condition on the sizes, until one fits always.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import tvm_ffi

from autopipe.compiler.dynamic_sizes.kernel_sizes import (
    DynamicSizes,
    find_min_extent,
    is_at_least,
)
from autopipe.schedules.tiling.loops import Tiled
from autopipe.schedules.tiling.nest import Nest
from autopipe.schedules.tiling.packing import Copy
from autopipe.schedules.tiling.tile import Tile

_NARROWER: Final = 4
"""Divisor of the vector width, a ratio, for columns that are fewer than a vector has elements. All
of 1 to 15 columns in vectors of 16, divided by 4, are 39 vectors and single columns, by 2 43, by 8
64."""

_FEWER: Final = 3
"""Divisor of the rows of a tile, a ratio, for rows that are fewer than a tile has. By 3 a tile of
12 x 2 vectors leaves 4 x 2 sums, which just hide the latency of 4 cycles in 2 ports. All of 1 to 11
rows then take 108 cycles a step, with 2 139, and with 4 121.5."""

_FITTING: Final = 2 / 3
"""Minimum part of the rows of a tile that is left where a tile of fewer rows fits every size. With
16 of 23 rows of a vector a convolution takes as long, with 4 of 8 rows of 3 vectors 1.1 times."""

_HIDING: Final = 8
"""Minimum vectors of sums of such a tile: they hide the latency of 4 cycles in 2 ports."""


def fit_smallest_size(nest: Nest, dynamic_sizes: DynamicSizes | None) -> Nest:
    """Reduce the rows of a tile to those of the smallest size where that costs few of them.

    Such a tile always fits, so that its loops are written and compiled once. Example: of images
    with 16 rows and more, tiles of 23 rows become tiles of 16.
    """
    tile, rows = nest.tile, find_min_extent(nest.height, dynamic_sizes)
    is_near = _FITTING * tile.rows <= rows < tile.rows
    if not is_near or rows * tile.columns < _HIDING * tile.width:
        return nest
    return replace(nest, tile=replace(tile, rows=rows))


def list_tile_levels(
    nest: Nest, copy: Copy | None, dynamic_sizes: DynamicSizes | None
) -> Sequence[Tiled]:
    """List a tile, and the smaller ones for sizes that it does not fit, the last of which fits."""
    return _drop_unreachable_tiles([(nest, copy), *_list_smaller_tiles(nest, copy)], dynamic_sizes)


def _list_smaller_tiles(nest: Nest, copy: Copy | None) -> Iterator[Tiled]:
    """Yield the remainder tiles for dynamic sizes that are too small for a whole tile.

    Example: tiles of 12 x 32 with vectors of 16 are followed by 4 x 32 and 1 x 32. Where the
    columns are dynamic, 12 x 16, 1 x 16, 12 x 4 and 1 x 4 follow, unless they are packed, and
    single outputs, of which there is always one.
    """
    if nest.fits is None:
        return
    nest = replace(nest, tile=replace(nest.tile, fetched=False))
    if not isinstance(nest.height, int):
        for rows in dict.fromkeys((max(1, nest.tile.rows // _FEWER), 1)):
            if rows < nest.tile.rows:
                yield replace(nest, tile=replace(nest.tile, rows=rows)), copy
    if not isinstance(nest.granule, int):
        for width in (nest.tile.width, nest.tile.width // _NARROWER) if copy is None else ():
            if 1 < width < nest.tile.columns:
                for rows in dict.fromkeys((nest.tile.rows, 1)):
                    narrow = replace(
                        nest.tile, rows=rows, columns=width, width=width, fetched=False
                    )
                    yield replace(nest, tile=narrow), None
        single = replace(nest.tile, rows=1, columns=1, width=1, packed=False)
        yield replace(nest, tile=single), None


def _drop_unreachable_tiles(
    tile_levels: Sequence[Tiled], dynamic_sizes: DynamicSizes | None
) -> Sequence[Tiled]:
    """Drop the tiles after the first one that fits even the smallest sizes.

    Where rows and columns are the same size, a tile that needs as much as the last one is dropped,
    too: TVM refuses loops that it can prove are never run.
    """
    reachable_levels: list[Tiled] = []
    for nest, copy in tile_levels:
        tile, square = nest.tile, tvm_ffi.structural_equal(nest.height, nest.granule)
        if (
            reachable_levels
            and square
            and _find_longest_side(tile) >= _find_longest_side(reachable_levels[-1][0].tile)
        ):
            continue
        reachable_levels.append((nest, copy))
        sides = ((nest.height, tile.rows), (nest.granule, tile.columns))
        if all(isinstance(side[0], int) or is_at_least(*side, dynamic_sizes) for side in sides):
            break
    return reachable_levels


def _find_longest_side(tile: Tile) -> int:
    return max(tile.rows, tile.columns)
