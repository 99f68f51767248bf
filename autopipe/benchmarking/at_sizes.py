"""Choose the sizes at which a model with dynamic shapes is timed, and summarize the times."""

import math
from collections.abc import Mapping
from itertools import chain

from autopipe.artifacts.benchmark import BenchmarkResult, SizedTimes
from autopipe.config.dimension import Dimension, Sizes, list_likely_sizes

_LARGER = 2
"""Factor from the first specialized size to the large one, bounded to limit the time."""


def choose_timed_sizes(dimensions: Mapping[str, Dimension]) -> tuple[Sizes, ...]:
    """Return the specialized sizes, then a middle and a large unspecialized one; () without any."""
    likely_sizes = list_likely_sizes(dimensions)
    if not likely_sizes:
        return ()
    middle = {name: _choose_geometric_middle(one) for name, one in dimensions.items()}
    large = {name: min(one.last, _LARGER * one.likely[0]) for name, one in dimensions.items()}
    added_sizes: list[Sizes] = []
    for sizes in (middle, large):
        unlisted = _find_unlisted_sizes(sizes, dimensions, [*likely_sizes, *added_sizes])
        if unlisted is not None:
            added_sizes.append(unlisted)
    return (*likely_sizes, *added_sizes)


def summarize_sizes(
    sizes: Sizes, result: BenchmarkResult, likely_sizes: tuple[Sizes, ...]
) -> SizedTimes:
    """Summarize the times at certain sizes; `likely_sizes` are the specialized ones."""
    return SizedTimes(
        sizes=dict(sizes),
        likely=any(dict(sizes) == dict(one) for one in likely_sizes),
        ours=result.ours.latency,
        competitors={competitor.name: competitor.latency for competitor in result.competitors},
        comparisons=result.comparisons,
        disturbed=result.disturbed,
        best=result.best,
    )


def _choose_geometric_middle(dimension: Dimension) -> int:
    """Return the geometric middle of a range: 8 of 1 to 64."""
    steps = round(math.sqrt(max(dimension.first, 1) * dimension.last) / dimension.multiple)
    return min(max(steps * dimension.multiple, dimension.first), dimension.last)


def _find_unlisted_sizes(
    sizes: Sizes, dimensions: Mapping[str, Dimension], listed_sizes: list[Sizes]
) -> Sizes | None:
    """Return these or adjacent valid sizes that are not listed; None if there are none."""
    near = chain(
        [sizes],
        ({**sizes, name: sizes[name] + step * one.multiple}
         for step in (-1, 1, -2, 2)
         for name, one in dimensions.items()),
    )  # fmt: skip
    for candidate in near:
        fits = all(one.refusal(candidate[name]) is None for name, one in dimensions.items())
        if fits and candidate not in listed_sizes:
            return candidate
    return None
