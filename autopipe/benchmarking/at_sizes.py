"""Which sizes of a model with open ones are timed, and what became of them."""

import math
from collections.abc import Mapping
from itertools import chain

from autopipe.artifacts.benchmark import BenchmarkResult, SizedTimes
from autopipe.config.dimension import Dimension, Sizes, list_likely_sizes

_LARGER = 2
"""So many times the first likely size is a large one: what takes minutes tells no more."""


def choose_timed_sizes(dimensions: Mapping[str, Dimension]) -> tuple[Sizes, ...]:
    """Return the likely sizes, then a middle one and a large one that are not; () without any."""
    known = list_likely_sizes(dimensions)
    if not known:
        return ()
    middle = {name: _choose_geometric_middle(one) for name, one in dimensions.items()}
    large = {name: min(one.last, _LARGER * one.likely[0]) for name, one in dimensions.items()}
    others: list[Sizes] = []
    for sizes in (middle, large):
        other = _find_unlisted_sizes(sizes, dimensions, [*known, *others])
        if other is not None:
            others.append(other)
    return (*known, *others)


def summarize_sizes(sizes: Sizes, found: BenchmarkResult, known: tuple[Sizes, ...]) -> SizedTimes:
    """Return what was measured at certain sizes; `known` are the likely ones."""
    return SizedTimes(
        sizes=dict(sizes),
        likely=any(dict(sizes) == dict(one) for one in known),
        ours=found.ours.latency,
        rivals={rival.name: rival.latency for rival in found.rivals},
        comparisons=found.comparisons,
        disturbed=found.disturbed,
        best=found.best,
    )


def _choose_geometric_middle(dimension: Dimension) -> int:
    """Return the middle of a range as factors go: 8 of 1 to 64."""
    steps = round(math.sqrt(max(dimension.first, 1) * dimension.last) / dimension.multiple)
    return min(max(steps * dimension.multiple, dimension.first), dimension.last)


def _find_unlisted_sizes(
    sizes: Sizes, dimensions: Mapping[str, Dimension], known: list[Sizes]
) -> Sizes | None:
    """Return sizes, or near ones, that are not known; None where there are none near."""
    near = chain(
        [sizes],
        ({**sizes, name: sizes[name] + step * one.multiple}
         for step in (-1, 1, -2, 2)
         for name, one in dimensions.items()),
    )  # fmt: skip
    for found in near:
        fits = all(one.refusal(found[name]) is None for name, one in dimensions.items())
        if fits and found not in known:
            return found
    return None
