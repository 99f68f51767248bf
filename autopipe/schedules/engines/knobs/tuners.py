"""Tuners decide in which order the settings of a template are tried: `model`, `random` or `grid`.

With `model`, a learned cost model chooses. The first settings are the template's own guesses. They
are followed by settings that are far from each other or, if the model has learned from other tasks,
by its best predictions. After that the model's best predictions are measured, and a few random
settings.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from autopipe.schedules.engines.knobs.cost_model import CostModel
from autopipe.schedules.engines.knobs.features import (
    combine_features,
    list_estimates,
    list_knob_values,
)
from autopipe.schedules.engines.knobs.space import Space

_EXPLORE: Final = 0.15
"""Share of a proposal that is chosen at random; epsilon in the paper."""

_GUESSED: Final = 0.5
"""Share of the first proposal that is chosen by the template's estimate, or, if it has none, near
the filled setting."""

_POOL: Final = 256
"""Random settings among which distant ones are selected."""


class Tuner(Protocol):
    """Chooses settings of one space."""

    def choose(self, count: int, seen: Collection[int]) -> list[int]:
        """Choose `count` settings that are not in `seen`, or all that are left."""

    def learn(self, seconds: Mapping[int, float]) -> None:
        """Learn the measured seconds of settings; infinite for a setting that failed."""


class FixedOrder:
    """Goes through all settings in an order that measurements do not change: `grid`, `random`."""

    def __init__(self, order: Sequence[int]) -> None:
        """Begin with the first of the indices."""
        self._order = order

    @classmethod
    def shuffled(cls, size: int, seed: int) -> "FixedOrder":
        """Shuffle the indices of `size` settings."""
        return cls(random.Random(seed).sample(range(size), size))  # noqa: S311 - no secret

    def choose(self, count: int, seen: Collection[int]) -> list[int]:
        """Return the next settings."""
        return [index for index in self._order if index not in seen][:count]

    def learn(self, seconds: Mapping[int, float]) -> None:
        """Learn nothing."""


class ModelGuided:
    """Chooses the settings that the cost model of the template predicts to be fastest."""

    def __init__(self, space: Space, seed: int, model: CostModel) -> None:
        """Begin a search with the model that all tasks of the template share."""
        self._rng = random.Random(seed)  # noqa: S311 - no secret
        knobs, guesses = list_knob_values(space), list_estimates(space)
        self._features = combine_features(space, knobs, guesses)
        self._points = np.log2(1 + np.abs(np.stack(list(knobs.values()), axis=1)))
        self._guesses = (
            self._compute_distances(0, range(len(self._points))) if guesses is None else guesses
        )
        self._model = model
        self._sample = model.join(self._features)

    def choose(self, count: int, seen: Collection[int]) -> list[int]:
        """Return the settings of the best predictions, the best first, then random ones."""
        unseen = [index for index in range(len(self._points)) if index not in seen]
        if not unseen:
            return []
        scores = self._model.predict(self._features)
        order = np.argsort(-scores[unseen], kind="stable") if scores is not None else ()
        ranked_unseen = [unseen[place] for place in order]
        if not ranked_unseen or self._sample.seconds.keys() <= {0}:
            return self._choose_first_batch(count, unseen, ranked_unseen)
        random_count = int(_EXPLORE * count + self._rng.random())
        best, rest = ranked_unseen[: count - random_count], ranked_unseen[count - random_count :]
        return best + self._rng.sample(rest, min(random_count, len(rest)))

    def learn(self, seconds: Mapping[int, float]) -> None:
        """Train the model on new measurements."""
        self._model.learn(self._sample, seconds)

    def _choose_first_batch(
        self, count: int, unseen: Sequence[int], ranking: Sequence[int]
    ) -> list[int]:
        """Return the template's guesses, then the model's predictions or distant settings."""
        order = sorted(unseen, key=lambda index: (index > 0, self._guesses[index]))
        some = max(1, round(_GUESSED * count))
        guesses, rest = order[:some], order[some:]
        if ranking or not rest:
            unchosen = set(rest)
            return guesses + [index for index in ranking if index in unchosen][: count - some]
        pool = self._rng.sample(rest, min(max(_POOL, count), len(rest)))
        return self._add_farthest(guesses, pool, count)

    def _add_farthest(self, indices: list[int], pool: Sequence[int], count: int) -> list[int]:
        """Add, one by one, the setting of the pool that is farthest from all chosen ones."""
        distances = np.min([self._compute_distances(index, pool) for index in indices], axis=0)
        while len(indices) < count and distances.any():
            farthest = pool[int(distances.argmax())]
            indices.append(farthest)
            distances = np.minimum(distances, self._compute_distances(farthest, pool))
        return indices

    def _compute_distances(self, index: int, pool: Sequence[int]) -> npt.NDArray[np.float32]:
        return np.abs(self._points[list(pool)] - self._points[index]).sum(axis=1)
