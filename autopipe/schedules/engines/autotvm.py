"""Engine `autotvm`: searches the knobs of a template by measuring.

After "Learning to Optimize Tensor Programs" (Chen et al., NeurIPS 2018). The space is all settings
of the first template that serves the function; a tuner of `knobs/` decides their order.
"""

from collections.abc import Sequence

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.engine import MeasuredSchedule, Problem
from autopipe.schedules.engines.knobs.cost_model import CostModel
from autopipe.schedules.engines.knobs.space import Space
from autopipe.schedules.engines.knobs.tuners import FixedOrder, ModelGuided, Tuner
from autopipe.schedules.templates.serve import serve


class AutoTVM:
    """Template search. All searches of a template train one cost model."""

    name = "autotvm"

    def __init__(self, conditions: Conditions) -> None:
        """Create the engine for the hardware of the conditions."""
        self._hardware = conditions.hardware
        self._models: dict[str, CostModel] = {}

    def search(self, problem: Problem) -> "KnobSearch | None":
        """Begin a search, or return None if no template serves the function."""
        served = serve(problem.module, self._hardware)
        if served is None:
            return None
        space = Space.of(served, self._hardware, problem.seed)
        return KnobSearch(space, self._tuner(space, problem), problem.known)

    def _tuner(self, space: Space, problem: Problem) -> Tuner:
        size = len(space.settings)
        if problem.tuner == "grid" or size == 1:
            return FixedOrder(range(size))
        if problem.tuner == "random":
            return FixedOrder.shuffled(size, problem.seed)
        model = self._models.setdefault(space.served.template.name, CostModel())
        return ModelGuided(space, problem.seed, model)


class KnobSearch:
    """The search of one task."""

    def __init__(
        self, space: Space, tuner: Tuner, known_schedules: Sequence[MeasuredSchedule]
    ) -> None:
        """Begin a search that has learned from earlier measurements."""
        self.size = len(space.settings)
        self._space = space
        self._tuner = tuner
        self._seen: set[int] = set()
        self._indices: dict[str, int] = {}
        if known_schedules:
            self.observe(known_schedules)

    def propose(self, count: int) -> list[str]:
        """Return the next settings to measure, `count` at most; [] once all were returned."""
        indices = self._tuner.choose(count, self._seen)
        self._seen.update(indices)
        documents = [self._space.document(index) for index in indices]
        self._indices.update(zip(documents, indices, strict=True))
        return documents

    def observe(self, measurements: Sequence[MeasuredSchedule]) -> None:
        """Learn from measurements of other runs, except of other templates or versions."""
        if len(self._indices) < self.size:
            self._indices = {self._space.document(index): index for index in range(self.size)}
        self.learn([sample for sample in measurements if sample.schedule in self._indices])

    def learn(self, measurements: Sequence[MeasuredSchedule]) -> None:
        """Pass the times of the settings to the tuner, in seconds."""
        seconds = {self._indices[sample.schedule]: sample.seconds for sample in measurements}
        self._seen.update(seconds)
        self._tuner.learn(seconds)
