"""Runs searches in a child process, so that a crash or hang of one costs that contender only.

All searches share the child, because they share a cost model. When it dies, the next request
starts another one, and each search begins there anew from what has been measured.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from autopipe.processes.contained import Child, Failed
from autopipe.schedules.engines.engine import Engine, Known, Problem, Search
from autopipe.tuning.worth import demand, size

Engines = Mapping[str, Callable[[], Engine]]
"""What makes each engine, by name; called in the child, when the first search of one begins."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One engine on one task."""

    engine: str
    problem: Problem
    """Without `known`, which is asked for when a search begins."""


class Searcher:
    """Asks searches for proposals. Fork-safe only while this process has a single thread."""

    def __init__(
        self,
        engines: Engines,
        arms: Sequence[Arm],
        known: Callable[[int], Sequence[Known]],
        least: int = 1,
        suspects: Collection[int] = (),
    ) -> None:
        """Take all arms; `known` returns what was measured for the arm of that index.

        A design space of fewer schedules than `least` is not searched. The arms of `suspects`
        failed in an earlier run: they do not begin once more.
        """
        self._child = Child(lambda: _Host(engines, arms).answer)
        self._known = known
        self._least = least
        self._open: set[int] = set()
        self._failed = set(suspects)

    def propose(self, arm: int, count: int) -> list[str] | None:
        """Return schedules to measure, [] if there are no more, None if the engine has none ever.

        A search that raises, crashes or hangs begins once more. Raises Failed the second time,
        and NotWorth if its design space is too small.
        """
        try:
            return self._proposed(arm, count)
        except Failed as error:
            self._forgive(arm, error)
            return self._proposed(arm, count)

    def learn(self, arm: int, measured: Sequence[Known]) -> None:
        """Tell a search how its last proposals did; one that is gone has nothing to learn.

        Raises Failed if it fails for the second time.
        """
        try:
            if arm in self._open:
                self._ask(arm, "learn", [asdict(known) for known in measured])
        except Failed as error:
            self._forgive(arm, error)

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def _proposed(self, arm: int, count: int) -> list[str] | None:
        if arm not in self._open:
            known = [asdict(known) for known in self._known(arm)]
            found = self._ask(arm, "begin", known)
            if found is None:
                return None
            demand(found, self._least)
            self._open.add(arm)
        schedules: list[str] = self._ask(arm, "propose", count)
        return schedules

    def _forgive(self, arm: int, error: Failed) -> None:
        """Have a search begin again from what is known, but only once."""
        self._open.discard(arm)
        if arm in self._failed:
            raise error
        self._failed.add(arm)

    def _ask(self, arm: int, method: str, argument: object) -> Any:  # noqa: ANN401 - JSON
        try:
            return self._child.ask([arm, method, argument])
        except Failed:
            if not self._child.alive:
                self._open.clear()
            raise


class _Host:
    """The searches that live in the child, by the index of their arm."""

    def __init__(self, makers: Engines, arms: Sequence[Arm]) -> None:
        self._makers = makers
        self._arms = arms
        self._engines: dict[str, Engine] = {}
        self._searches: dict[int, Search] = {}

    def answer(self, request: tuple[int, str, Any]) -> Any:  # noqa: ANN401 - JSON
        arm, method, argument = request
        return getattr(self, method)(arm, argument)

    def begin(self, index: int, known: Sequence[Mapping[str, Any]]) -> float | None:
        arm = self._arms[index]
        problem = replace(arm.problem, known=_known(known))
        if arm.engine not in self._engines:
            self._engines[arm.engine] = self._makers[arm.engine]()
        search = self._engines[arm.engine].search(problem)
        if search is None:
            return None
        self._searches[index] = search
        return size(search)

    def propose(self, index: int, count: int) -> list[str]:
        return self._searches[index].propose(count)

    def learn(self, index: int, measured: Sequence[Mapping[str, Any]]) -> None:
        self._searches[index].learn(_known(measured))


def _known(entries: Sequence[Mapping[str, Any]]) -> list[Known]:
    return [Known(**entry) for entry in entries]
