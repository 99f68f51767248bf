"""Lay out a directed graph in layers, each node below its inputs (Sugiyama's method).

Edges that cross layers pass through dummy nodes there. Nodes of a layer are ordered by the
barycentres of their neighbours, and placed as close to these as their widths allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_SWEEPS: Final = 8
_MOST: Final = 20_000
"""Largest number of nodes, dummy nodes included, of a layout."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Centres of nodes, and the centres along each edge, from source to target."""

    centres: tuple[tuple[float, float], ...]
    edges: tuple[tuple[tuple[float, float], ...], ...]
    width: float
    height: float


class _Layers:
    """Nodes by layer, their neighbours above and below, and their positions."""

    def __init__(self, reads: Sequence[Sequence[int]]) -> None:
        self.ranks: list[int] = []
        for sources in reads:
            self.ranks.append(1 + max((self.ranks[at] for at in sources), default=-1))
        self.above: list[list[int]] = [[] for _ in reads]
        self.below: list[list[int]] = [[] for _ in reads]
        self.chains = [
            self._insert_dummy_nodes(source, node)
            for node, sources in enumerate(reads)
            for source in sources
        ]
        self.rows: list[list[int]] = [[] for _ in range(max(self.ranks, default=-1) + 1)]
        for place, rank in enumerate(self.ranks):
            self.rows[rank].append(place)
        self.x = [0.0] * len(self.ranks)

    def _insert_dummy_nodes(self, source: int, target: int) -> list[int]:
        """Connect two nodes by a dummy node in each layer between them."""
        first, last = self.ranks[source] + 1, self.ranks[target]
        between = range(len(self.ranks), len(self.ranks) + last - first)
        self.ranks += range(first, last)
        self.above += [[] for _ in between]
        self.below += [[] for _ in between]
        chain = [source, *between, target]
        for upper, lower in pairwise(chain):
            self.below[upper].append(lower)
            self.above[lower].append(upper)
        return chain

    def order(self) -> None:
        """Sort each layer by the mean position of neighbours, alternately down- and upwards."""
        for row in self.rows:
            self._number_row(row)
        for sweep in range(_SWEEPS):
            downwards = sweep % 2 == 0
            near = self.above if downwards else self.below
            for row in self.rows if downwards else reversed(self.rows):
                row.sort(key=lambda place: self._compute_mean_position(near[place], self.x[place]))
                self._number_row(row)

    def settle(self, widths: Sequence[float], gap: float) -> None:
        """Place each layer as close to its neighbours as widths allow, keeping the order."""
        for sweep in range(_SWEEPS):
            downwards = sweep % 2 == 0
            near = self.above if downwards else self.below
            for row in self.rows if downwards else reversed(self.rows):
                targets = [self._compute_mean_position(near[place], self.x[place]) for place in row]
                for place, x in zip(row, _fit_positions(row, targets, widths, gap), strict=True):
                    self.x[place] = x

    def _compute_mean_position(self, places: Sequence[int], otherwise: float) -> float:
        return sum(self.x[place] for place in places) / len(places) if places else otherwise

    def _number_row(self, row: Sequence[int]) -> None:
        for position, place in enumerate(row):
            self.x[place] = float(position)


def lay_out(
    reads: Sequence[Sequence[int]], *, width: float, height: float, gap: float
) -> Layout | None:
    """Lay out nodes of one size; None for a graph that is too large.

    `reads` lists, for each node, the earlier nodes that it reads.
    """
    layers = _Layers(reads) if len(reads) <= _MOST and _count_places(reads) <= _MOST else None
    if layers is None:
        return None
    layers.order()
    widths = [width] * len(reads) + [gap] * (len(layers.ranks) - len(reads))
    layers.settle(widths, gap)
    left = min((x - own / 2 for x, own in zip(layers.x, widths, strict=True)), default=0.0)
    right = max((x + own / 2 for x, own in zip(layers.x, widths, strict=True)), default=0.0)
    points = [
        (x - left, rank * (height + gap) + height / 2)
        for x, rank in zip(layers.x, layers.ranks, strict=True)
    ]
    edges = tuple(tuple(points[place] for place in chain) for chain in layers.chains)
    total_height = len(layers.rows) * (height + gap)
    return Layout(tuple(points[: len(reads)]), edges, right - left, total_height)


def _count_places(reads: Sequence[Sequence[int]]) -> int:
    """Count nodes and dummy nodes in all layers."""
    ranks: list[int] = []
    count = 0
    for sources in reads:
        ranks.append(1 + max((ranks[at] for at in sources), default=-1))
        count += 1 + sum(ranks[-1] - ranks[at] - 1 for at in sources)
    return count


def _fit_positions(
    row: Sequence[int], targets: Sequence[float], widths: Sequence[float], gap: float
) -> list[float]:
    """Fit ordered positions, at least the widths apart, to `targets` by least squares.

    After subtracting the widths this is isotonic regression: adjacent violators are pooled at their
    mean.
    """
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + gap)
    pools: list[tuple[float, int]] = []
    for value, offset in zip(targets, offsets, strict=True):
        mean, count = value - offset, 1
        while pools and pools[-1][0] > mean:
            before, size = pools.pop()
            mean, count = (mean * count + before * size) / (count + size), count + size
        pools.append((mean, count))
    flat = [mean for mean, count in pools for _ in range(count)]
    return [x + offset for x, offset in zip(flat, offsets, strict=True)]
