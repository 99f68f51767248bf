"""Gradient-boosted trees that predict how good a setting is, from all tasks of one template.

After "Learning to Optimize Tensor Programs" (NeurIPS 2018), sections 3 and 4. The model predicts
the logarithm of the speed, relative to the best speed of the same task. So one model can learn from
tasks of all sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from autopipe.schedules.engines.knobs.features import Features

_WORST: Final = math.log(16)
"""Settings slower than this, and failed ones, are all equally bad."""

_TREES: Final = 60
_PARAMETERS: Final = {
    "max_depth": 5,
    "eta": 0.2,
    "min_child_weight": 1,
    "nthread": 1,  # more of them spin, and take longer where the processor is shared
    "tree_method": "hist",
    "verbosity": 0,
}

_LATEST: Final = 4000
"""Number of newest measurements in a training: more of them make a proposal slow."""


@dataclass(slots=True)
class Sample:
    """The measurements of one task."""

    features: Features
    seconds: dict[int, float] = field(default_factory=dict)
    """Seconds by the index of the setting; infinite if it failed."""


class CostModel:
    """The model of one template."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._names: list[str] = []
        self._booster: Any = None
        self._stale = False

    def join(self, features: Features) -> Sample:
        """Add a task, and return the sample that collects its measurements."""
        sample = Sample(features)
        self._samples.append(sample)
        return sample

    def learn(self, sample: Sample, seconds: Mapping[int, float]) -> None:
        """Add measurements of a task."""
        sample.seconds.update(seconds)
        self._stale = True

    def predict(self, features: Features) -> npt.NDArray[np.float32] | None:
        """Predict the log speed of each setting of a task; None before any measurement."""
        if self._stale:
            self._train_booster()
            self._stale = False
        if self._booster is None:
            return None
        rows = _build_matrix(features, self._names, slice(None))
        return self._booster.inplace_predict(rows)

    def _train_booster(self) -> None:
        import xgboost

        samples = [
            sample
            for sample in self._samples
            if len(sample.seconds) > 1 and min(sample.seconds.values()) < math.inf
        ]
        if not samples:
            return
        self._names = sorted({name for sample in samples for name in sample.features})
        rows = [
            _build_matrix(sample.features, self._names, list(sample.seconds)) for sample in samples
        ]
        goals = [_to_log_speeds(list(sample.seconds.values())) for sample in samples]
        data = xgboost.DMatrix(
            np.concatenate(rows)[-_LATEST:], np.concatenate(goals)[-_LATEST:], nthread=1
        )
        self._booster = xgboost.train(_PARAMETERS, data, _TREES)


def _build_matrix(
    features: Features, names: Sequence[str], rows: slice | list[int]
) -> npt.NDArray[np.float32]:
    """Build a matrix [settings, features], NaN where a setting lacks a feature."""
    size = len(next(iter(features.values())))
    missing = np.full(size, np.nan, np.float32)
    return np.stack([features.get(name, missing)[rows] for name in names], axis=1)


def _to_log_speeds(seconds: Sequence[float]) -> npt.NDArray[np.float32]:
    """Return log(best time / time): 0 for the best setting, negative for all others."""
    logs = np.log(min(seconds)) - np.log(np.array(seconds))
    return np.maximum(logs, -_WORST).astype(np.float32)
