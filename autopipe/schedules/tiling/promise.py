"""How fast a tile is, estimated from coarse hardware parameters: what engine `static` goes by."""

import math
from typing import Final

from autopipe.schedules.hardware import Hardware
from autopipe.schedules.primitives import PRODUCTS
from autopipe.schedules.tiling.form import Contraction
from autopipe.schedules.tiling.tile import Tile, settings

_LATENCY: Final = 4
"""Cycles from a multiply-add to the next on the same sum."""

_UNITS: Final = 2
"""Multiply-adds, and loads, that begin in a cycle."""

_STEP: Final = 0.5
"""Cycles that a step of the sum costs besides: it favours tiles of many sums."""

_STORE, _TILE = 2, 20
"""Cycles to begin a sum and to do what follows it, a vector, and those of a tile besides."""


def fill(found: Contraction, hardware: Hardware) -> Tile:
    """Return the knobs for a processor, without measuring: the tile of the least estimated time."""
    return min(settings(found, hardware), key=lambda tile: estimate(found, tile, hardware))


def estimate(found: Contraction, tile: Tile, hardware: Hardware) -> float:
    """Estimate the cycles until the last core is done.

    A step of the sum takes as long as its multiply-adds, its loads or the latency of one, whichever
    is longest; narrow vectors and ragged edges cost more steps, uneven shares of the cores too.
    """
    vectors = tile.columns // tile.width
    sums = tile.rows * vectors
    step = max(sums / _UNITS, (tile.rows + vectors) / _UNITS, _LATENCY) + _STEP
    cuts = -(-found.lines.granule // tile.columns)
    strips = found.breadth // found.lines.granule * cuts
    bands = -(-found.height // tile.rows)
    jobs = strips * bands * math.prod(found.extents[axis] for axis in found.others)
    each = math.prod(found.terms) * step + sums * _STORE + _TILE
    return -(-jobs // (hardware.cores if found.products >= PRODUCTS else 1)) * each
