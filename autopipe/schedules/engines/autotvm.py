"""Engine `autotvm`: the knobs of a template, searched by measuring.

After "Learning to Optimize Tensor Programs" (NeurIPS 2018). The space is every setting that the
first template that serves a function calls possible; a tuner decides the order.
"""

from collections.abc import Sequence

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.engine import Known, Problem
from autopipe.schedules.engines.knobs.cost_model import CostModel
from autopipe.schedules.engines.knobs.grid import Grid
from autopipe.schedules.engines.knobs.model_guided import ModelGuided
from autopipe.schedules.engines.knobs.random_order import RandomOrder
from autopipe.schedules.engines.knobs.space import Space
from autopipe.schedules.engines.knobs.tuner import Tuner
from autopipe.schedules.templates.serve import serve


class AutoTVM:
    """Template search; all searches of a template train one cost model."""

    name = "autotvm"

    def __init__(self, conditions: Conditions) -> None:
        """Take the hardware that templates are filled for."""
        self._hardware = conditions.hardware
        self._models: dict[str, CostModel] = {}

    def search(self, problem: Problem) -> "Settings | None":
        """Begin a search, or return None if no template serves the function."""
        served = serve(problem.module, self._hardware)
        if served is None:
            return None
        space = Space.of(served, self._hardware, problem.seed)
        return Settings(space, self._tuner(space, problem), problem.known)

    def _tuner(self, space: Space, problem: Problem) -> Tuner:
        if problem.tuner == "grid" or len(space.settings) == 1:
            return Grid(space)
        if problem.tuner == "random":
            return RandomOrder(space, problem.seed)
        model = self._models.setdefault(space.served.template.NAME, CostModel())
        return ModelGuided(space, problem.seed, model)


class Settings:
    """The search of one task."""

    def __init__(self, space: Space, tuner: Tuner, known: Sequence[Known]) -> None:
        """Take what was measured before; records of other templates and versions say nothing."""
        self.size = len(space.settings)
        self._space = space
        self._tuner = tuner
        self._seen: set[int] = set()
        self._indices: dict[str, int] = {}
        if known:
            size = len(space.settings)
            self._indices = {space.document(index): index for index in range(size)}
            self.learn([each for each in known if each.schedule in self._indices])

    def propose(self, count: int) -> list[str]:
        """Return the next settings to measure, [] once all were."""
        chosen = self._tuner.choose(count, self._seen)
        self._seen.update(chosen)
        documents = [self._space.document(index) for index in chosen]
        self._indices.update(zip(documents, chosen, strict=True))
        return documents

    def learn(self, measured: Sequence[Known]) -> None:
        """Tell the tuner how long the settings took."""
        found = {self._indices[each.schedule]: each.seconds for each in measured}
        self._seen.update(found)
        self._tuner.learn(found)
