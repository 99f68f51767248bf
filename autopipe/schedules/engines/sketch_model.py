"""The cost model of sketches: TVM's gradient-boosted trees, with less work and a seed.

TVM extracts the features of a candidate in each of its generations, and again after measurement,
and lowers it each time. Here they are extracted once. And before the model can predict, TVM draws
scores from numpy's global generator, which has no seed.
"""

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

_CACHED_CANDIDATES: Final = 4096
"""Candidates whose features are cached: those of a few batches of all tasks."""

Matrix = npt.NDArray[np.float32]
"""The features of a candidate: a row for each store of its program."""


class _Remembered:
    """Cached features of a candidate, with the interface of a TVM tensor."""

    def __init__(self, features: Matrix) -> None:
        self._features = features

    def numpy(self) -> Matrix:
        return self._features


class Extractor(ms.feature_extractor.PerStoreFeature):
    """Extracts the features of candidates, and caches those of the latest."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """Create an empty cache."""
        super().__init__()
        self._known: dict[int, tuple[Any, _Remembered]] = {}

    def extract_from(
        self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]
    ) -> list[_Remembered]:
        """Extract the features of each candidate."""
        schedules = [candidate.sch for candidate in candidates]
        places = [hash(schedule) for schedule in schedules]  # of the object, while it is kept
        new = [n for n, place in enumerate(places) if place not in self._known]
        if new:
            new_features = super().extract_from(context, [candidates[n] for n in new])
            for n, features in zip(new, new_features, strict=True):
                remembered = _Remembered(features.numpy().astype("float32"))
                self._known[places[n]] = schedules[n], remembered
        answer = [self._known[place][1] for place in places]
        while len(self._known) > _CACHED_CANDIDATES:
            del self._known[next(iter(self._known))]
        return answer


@derived_object
class SketchModel(ms.cost_model.XGBModel._cls):  # noqa: SLF001 -- TVM wants it so
    """TVM's model; scores that it cannot predict yet are drawn by a seed."""

    def __init__(self, seed: int, warm: int) -> None:
        """Create a model that predicts after `warm` measurements."""
        # One thread: more of them spin, and take ten times as long where the processor is shared.
        # libgomp looks at this once, when xgboost is imported; that is what makes matrices.
        os.environ["OMP_NUM_THREADS"] = "1"
        super().__init__(extractor=Extractor(), num_warmup_samples=warm, num_tuning_cores=1)
        self._rng = np.random.default_rng(seed)

    def predict(
        self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]
    ) -> npt.NDArray[np.float64]:
        """Predict a score for each candidate; higher is faster."""
        if self.booster is None or self.data_size < self.num_warmup_samples:
            return self._rng.uniform(size=len(candidates))
        scores: npt.NDArray[np.float64] = super().predict(context, candidates)
        return scores
