"""Choose sizes of dynamic dimensions besides the specialized ones, where tile tails may fail."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from autopipe.config.dimension import Dimension, Sizes, list_likely_sizes

_MOST: Final = 20
"""Approximate number of sizes."""
_RANDOM: Final = 4
_TILES: Final = (8, 16)
"""Common divisors of tile extents; small multiples of them are tried."""
_MULTIPLES: Final = 4


def choose_trial_sizes(dimensions: Mapping[str, Dimension], seed: int) -> tuple[Sizes, ...]:
    """Choose distinct sizes besides the specialized ones; the same seed gives the same sizes.

    First the ends of all ranges, then sizes at tile boundaries and one step off, then random
    ones. Small sizes are as frequent as large ones: they have the tails, and cost little.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    candidate_sizes = _list_end_sizes(dimensions)
    near = {
        name: generator.permutation(_list_tile_boundary_sizes(one))
        for name, one in dimensions.items()
    }
    for place in range(max(map(len, near.values()))):
        candidate_sizes.append(
            {name: int(sizes[place % len(sizes)]) for name, sizes in near.items()}
        )
    specialized_sizes = [_to_sizes_key(sizes) for sizes in list_likely_sizes(dimensions)]
    boundary_sizes = _select_new_sizes(candidate_sizes, specialized_sizes)[: _MOST - _RANDOM]
    random_sizes = [_draw_sizes(dimensions, generator) for _ in range(_RANDOM)]
    return tuple(_select_new_sizes([*boundary_sizes, *random_sizes], specialized_sizes))


def _list_end_sizes(dimensions: Mapping[str, Dimension]) -> list[Sizes]:
    """List the sizes at the ends: all smallest, all largest, and each alone at its other end."""
    first = {name: one.first for name, one in dimensions.items()}
    last = {name: one.last for name, one in dimensions.items()}
    end_sizes: list[Sizes] = [first, last]
    for name in dimensions:
        end_sizes += [{**first, name: last[name]}, {**last, name: first[name]}]
    return end_sizes


def _list_tile_boundary_sizes(dimension: Dimension) -> list[int]:
    """List sizes at tile boundaries and one step off, in elements and in multiples."""
    step, candidate_sizes = dimension.multiple, set[int]()
    powers = {2**power for power in range(dimension.last.bit_length())}
    tiles = {tile * times for tile in _TILES for times in range(1, _MULTIPLES + 1)}
    for boundary in powers | tiles:
        for middle in (boundary * step, boundary // step * step):
            candidate_sizes.update((middle - step, middle, middle + step))
    return sorted(size for size in candidate_sizes if dimension.refusal(size) is None)


def _draw_sizes(dimensions: Mapping[str, Dimension], generator: np.random.Generator) -> Sizes:
    sizes = {}
    for name, dimension in dimensions.items():
        low, high = dimension.first // dimension.multiple, dimension.last // dimension.multiple
        steps = np.exp(generator.uniform(np.log(max(low, 1)), np.log(high + 1)))
        sizes[name] = min(max(int(steps), low), high) * dimension.multiple
    return sizes


def _select_new_sizes(
    candidate_sizes: Sequence[Sizes], known_keys: Sequence[tuple[int, ...]]
) -> list[Sizes]:
    """Remove duplicate and known sizes, keeping the order."""
    return [
        sizes
        for key, sizes in {_to_sizes_key(one): one for one in candidate_sizes}.items()
        if key not in known_keys
    ]


def _to_sizes_key(sizes: Sizes) -> tuple[int, ...]:
    return tuple(sizes.values())
