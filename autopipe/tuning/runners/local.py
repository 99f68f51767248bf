"""The runner `local`: candidates are built and timed on this machine."""

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing

from autopipe.environment.facet import Facet
from autopipe.measure.local import Local
from autopipe.measure.measurement import Measurement, Repeatable
from autopipe.tuning.runners.runner import Wanted


class LocalRunner:
    """One candidate after the other, on the processor or the first GPU of this machine."""

    width = 1
    checker = None

    def __init__(self, local: Local, device: Mapping[str, object]) -> None:
        """Initialize from the local measurer and the facts of this machine."""
        self._local = local
        self.device = device

    def measure(
        self,
        candidates: Sequence[Repeatable],
        best: float = math.inf,
        *,
        same_task: bool = True,
        until: float = math.inf,
    ) -> Generator[tuple[int, Measurement]]:
        """Yield place and measurement of each candidate, in order."""
        with closing(
            self._local.measure(candidates, best, same_task=same_task, until=until)
        ) as measurements:
            yield from enumerate(measurements)

    def rounds(self, candidates: Sequence[Repeatable], count: int) -> list[Measurement]:
        """Time all candidates one after the other, `count` times."""
        return self._local.rounds(candidates, count)

    def close(self) -> None:
        """End the children that wait to be timed again."""
        self._local.close()


def open_runner(request: Wanted) -> LocalRunner:
    """Open the runner of this machine. Raises SetupError if nothing can be timed."""
    conditions = request.conditions
    local = Local(
        conditions.target, conditions.hardware.cores, request.measure, request.turn, request.touched
    )
    return LocalRunner(local, request.facts[Facet.DEVICE])
