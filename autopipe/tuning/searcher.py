"""Runs searches in a child process, so that a crash or hang of one costs that contender only.

All searches share the child, because they share a cost model. When it dies, the next request
starts another one, and each search begins there anew from what has been measured.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import How
from autopipe.schedules.engines.engine import Engine, MeasuredSchedule, Problem, Search
from autopipe.schedules.policy import Contender
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.worth import demand, size

Engines = Mapping[str, Callable[[], Engine]]
"""What makes each engine, by name; called in the child, when the first search of one begins."""


Key = tuple[str, Contender]
"""A search: the name of the task, and who searches. It means the same in both processes."""


def key(state: TaskState, by: Contender) -> Key:
    """Return what the search of a contender for a task goes by."""
    return state.task.name, by


class OutOfTime(Exception):  # noqa: N818 - says what happened
    """The time of the run ended while a search was busy. It was ended, and is not to blame."""


class Searcher:
    """Asks searches for proposals. Fork-safe only while this process has a single thread."""

    def __init__(  # noqa: PLR0913 - one for each thing that may end a search
        self,
        engines: Engines,
        problems: Mapping[Key, Problem],
        known: Callable[[TaskState, Contender], Sequence[MeasuredSchedule]],
        least: int = 1,
        suspects: Iterable[Key] = (),
        *,
        left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """Take what may be searched; `known` returns what was measured when a search begins.

        A design space of fewer schedules than `least` is not searched. The searches of `suspects`
        failed in an earlier run: they do not begin once more. `left` says how many seconds the run
        has left for searches: one that takes longer is ended.
        """
        self._child = Child(lambda: _Host(engines, problems).answer)
        self._known = known
        self._least = least
        self._open: set[Key] = set()
        self._failed = set(suspects)
        self._left = left

    def propose(self, state: TaskState, by: Contender, count: int) -> list[str] | None:
        """Return schedules to measure, [] if there are no more, None if the engine has none ever.

        A search that raises, crashes or hangs begins once more. Raises Failed the second time,
        NotWorth if its design space is too small, and OutOfTime.
        """
        try:
            return self._proposed(state, by, count)
        except Failed as error:
            self._forgive(key(state, by), error)
            return self._proposed(state, by, count)

    def learn(self, state: TaskState, by: Contender, measured: Sequence[MeasuredSchedule]) -> None:
        """Tell a search how its last proposals did; one that is gone has nothing to learn.

        Raises Failed if it fails for the second time, and OutOfTime.
        """
        own = key(state, by)
        try:
            if own in self._open:
                self._ask(own, "learn", [asdict(known) for known in measured])
        except Failed as error:
            self._forgive(own, error)

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def _proposed(self, state: TaskState, by: Contender, count: int) -> list[str] | None:
        own = key(state, by)
        if own not in self._open:
            known = [asdict(known) for known in self._known(state, by)]
            found = self._ask(own, "begin", known)
            if found is None:
                return None
            demand(found, self._least)
            self._open.add(own)
        schedules: list[str] = self._ask(own, "propose", count)
        return schedules

    def _forgive(self, own: Key, error: Failed) -> None:
        """Have a search begin again from what is known, but only once."""
        self._open.discard(own)
        if own in self._failed:
            raise error
        self._failed.add(own)

    def _ask(self, own: Key, method: str, argument: object) -> Any:  # noqa: ANN401 - JSON
        self._child.seconds = min(self._child.seconds, max(0.0, self._left()))
        try:
            return self._child.ask([own, method, argument])
        except Failed as error:
            if not self._child.alive:
                self._open.clear()
            if error.how is How.HUNG and self._left() <= 0:
                raise OutOfTime from None
            raise


class _Host:
    """The searches that live in the child."""

    def __init__(self, makers: Engines, problems: Mapping[Key, Problem]) -> None:
        self._makers = makers
        self._problems = problems
        self._engines: dict[str, Engine] = {}
        self._searches: dict[Key, Search] = {}

    def answer(self, request: tuple[tuple[str, Sequence[str]], str, Any]) -> Any:  # noqa: ANN401 - JSON
        (task, by), method, argument = request
        return getattr(self, method)((task, Contender(*by)), argument)

    def begin(self, own: Key, known: Sequence[Mapping[str, Any]]) -> float | None:
        problem, engine = replace(self._problems[own], known=_known(known)), own[1].engine
        if engine not in self._engines:
            self._engines[engine] = self._makers[engine]()
        search = self._engines[engine].search(problem)
        if search is None:
            return None
        self._searches[own] = search
        return size(search)

    def propose(self, own: Key, count: int) -> list[str]:
        return self._searches[own].propose(count)

    def learn(self, own: Key, measured: Sequence[Mapping[str, Any]]) -> None:
        self._searches[own].learn(_known(measured))


def _known(entries: Sequence[Mapping[str, Any]]) -> list[MeasuredSchedule]:
    return [MeasuredSchedule(**entry) for entry in entries]
