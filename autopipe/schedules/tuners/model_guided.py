"""Tuner `model`: a learned cost model chooses what is measured.

The first settings are the one filled without measuring, its neighbours, and some that are far from
each other; then those that the model promises most of, and a few at random.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from autopipe.schedules.tuners.cost_model import CostModel
from autopipe.schedules.tuners.features import features, values
from autopipe.schedules.tuners.space import Space

_EXPLORE: Final = 0.15
"""Share of a proposal that is chosen at random; epsilon in the paper."""

_NEAR: Final = 0.5
"""Share of the first proposal that is near the filled setting."""

_POOL: Final = 256
"""Settings among which distant ones are looked for."""


class ModelGuided:
    """Measures what the model of the template promises most of."""

    def __init__(self, space: Space, seed: int, model: CostModel) -> None:
        """Take the model that all tasks of the template share."""
        self._rng = random.Random(seed)  # noqa: S311 - no secret
        self._features = features(space)
        self._points = np.log2(1 + np.abs(np.stack(list(values(space).values()), axis=1)))
        self._model = model
        self._sample = model.join(self._features)

    def choose(self, count: int, seen: Collection[int]) -> list[int]:
        """Return the most promising settings, the best first, then what is tried at random."""
        unseen = [index for index in range(len(self._points)) if index not in seen]
        promise = self._model.predict(self._features)
        if promise is None:
            return self._first(count, unseen) if unseen else []
        order = [unseen[place] for place in np.argsort(-promise[unseen], kind="stable")]
        if 0 in unseen:  # what other tasks taught may not hold here
            order.insert(0, order.pop(order.index(0)))
        explored = int(_EXPLORE * count + self._rng.random())
        best, rest = order[: count - explored], order[count - explored :]
        return best + self._rng.sample(rest, min(explored, len(rest)))

    def learn(self, measured: Mapping[int, float]) -> None:
        """Teach the model."""
        self._model.learn(self._sample, measured)

    def _first(self, count: int, unseen: Sequence[int]) -> list[int]:
        """Return settings near the filled one, and others far from each other."""
        distance = np.abs(self._points - self._points[0]).sum(axis=1)
        order = sorted(unseen, key=lambda index: distance[index])
        near = max(1, round(_NEAR * count))
        far = self._rng.sample(order[near:], min(max(_POOL, count), len(order[near:])))
        return self._spread(order[:near], far, count)

    def _spread(self, chosen: list[int], pool: Sequence[int], count: int) -> list[int]:
        """Add, again and again, the setting of the pool that is farthest from all chosen ones."""
        apart = np.min([self._apart(index, pool) for index in chosen], axis=0)
        while len(chosen) < count and apart.any():
            farthest = pool[int(apart.argmax())]
            chosen.append(farthest)
            apart = np.minimum(apart, self._apart(farthest, pool))
        return chosen

    def _apart(self, index: int, pool: Sequence[int]) -> npt.NDArray[np.float32]:
        return np.abs(self._points[list(pool)] - self._points[index]).sum(axis=1)
