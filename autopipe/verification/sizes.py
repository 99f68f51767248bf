"""Open sizes to compare at besides the likely ones: where the tail of a tile may go wrong."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from autopipe.config.dimension import Dimension, Sizes, list_likely_sizes

_MOST: Final = 20
"""Sizes that are tried, about."""
_RANDOM: Final = 4
_TILES: Final = (8, 16)
"""What extents of tiles are multiples of; small multiples of them are tried."""
_MULTIPLES: Final = 4


def choose_trial_sizes(dimensions: Mapping[str, Dimension], seed: int) -> tuple[Sizes, ...]:
    """Return sizes that are not likely, each once; the same seed gives the same.

    First the ends of all ranges, each with each where these are few; then sizes at the boundaries
    of tiles and one step off, then random ones. Small sizes are as frequent as large ones: there
    are the tails, and they cost little.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    found = _list_end_sizes(dimensions)
    near = {
        name: generator.permutation(_list_tile_boundary_sizes(one))
        for name, one in dimensions.items()
    }
    for place in range(max(map(len, near.values()))):
        found.append({name: int(sizes[place % len(sizes)]) for name, sizes in near.items()})
    wanted = [_to_sizes_key(sizes) for sizes in list_likely_sizes(dimensions)]
    kept = _select_new_sizes(found, wanted)[: _MOST - _RANDOM]
    drawn = [_draw_sizes(dimensions, generator) for _ in range(_RANDOM)]
    return tuple(_select_new_sizes([*kept, *drawn], wanted))


def _list_end_sizes(dimensions: Mapping[str, Dimension]) -> list[Sizes]:
    """Return all smallest and all largest sizes, and each at its other end alone."""
    first = {name: one.first for name, one in dimensions.items()}
    last = {name: one.last for name, one in dimensions.items()}
    found: list[Sizes] = [first, last]
    for name in dimensions:
        found += [{**first, name: last[name]}, {**last, name: first[name]}]
    return found


def _list_tile_boundary_sizes(dimension: Dimension) -> list[int]:
    """Return sizes at boundaries of tiles and a step off, counted as they are or in multiples."""
    step, found = dimension.multiple, set[int]()
    powers = {2**power for power in range(dimension.last.bit_length())}
    tiles = {tile * times for tile in _TILES for times in range(1, _MULTIPLES + 1)}
    for boundary in powers | tiles:
        for middle in (boundary * step, boundary // step * step):
            found.update((middle - step, middle, middle + step))
    return sorted(size for size in found if dimension.refusal(size) is None)


def _draw_sizes(dimensions: Mapping[str, Dimension], generator: np.random.Generator) -> Sizes:
    found = {}
    for name, one in dimensions.items():
        low, high = one.first // one.multiple, one.last // one.multiple
        steps = np.exp(generator.uniform(np.log(max(low, 1)), np.log(high + 1)))
        found[name] = min(max(int(steps), low), high) * one.multiple
    return found


def _select_new_sizes(found: Sequence[Sizes], known: Sequence[tuple[int, ...]]) -> list[Sizes]:
    """Return sizes in order, those once that are several times there, without known ones."""
    return [
        sizes
        for key, sizes in {_to_sizes_key(one): one for one in found}.items()
        if key not in known
    ]


def _to_sizes_key(sizes: Sizes) -> tuple[int, ...]:
    return tuple(sizes.values())
