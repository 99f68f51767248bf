"""A process in which searches live: asked one thing after the other, without waiting for it."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import Failure, How
from autopipe.processes.link import Link, wait_for_readable
from autopipe.schedules.engines.engine import Engine, MeasuredSchedule, Problem, Search
from autopipe.schedules.policy import Contender
from autopipe.tuning.search.worth import count_schedules

Engines = Mapping[str, Callable[[], Engine]]
"""Engine factories by name; the child calls one when the first search of its engine begins."""

Key = tuple[str, Contender]
"""A search: the name of the task, and the arm. The same in both processes."""

GONE: Final = Failed(
    Failure(How.ENDED, "the process of this search ended while another one was busy")
)
"""The answer to requests of a process that has ended: no search is to blame."""


class SearchProcess:
    """Sends requests to the searches of some tasks, which share their learned state.

    It has one request at a time, and is asked for the next one as soon as that is answered.
    """

    def __init__(
        self, engines: Engines, problems: Mapping[Key, Problem], left: Callable[[], float]
    ) -> None:
        """Prepare a child without starting it; `left` returns the seconds left for searches."""
        self._child = Child(lambda: _Host(engines, problems).answer)
        self._time = left
        self._waiting: deque[tuple[int, Any]] = deque()
        self._busy: int | None = None
        self._until = math.inf
        self._count = 0
        self.life = 1
        """How many processes it has had by now, each of which begins with nothing."""
        self._answers: dict[int, Any] = {}

    @property
    def link(self) -> Link | None:
        """The link that becomes readable with the answer; None without a pending request."""
        return None if self._busy is None else self._child.link

    def ask(self, request: object) -> int:
        """Queue a request; return its number."""
        self._count += 1
        self._waiting.append((self._count, request))
        self.go_on()
        return self._count

    def taken(self, number: int) -> Any:  # noqa: ANN401 -- JSON, or Failed
        """Return the answer to a request; null while there is none."""
        self.go_on()
        return self._answers.pop(number, None)

    def go_on(self) -> None:
        """Store an available answer, and send the next request."""
        while self._busy is not None or self._waiting:
            late = monotonic() >= self._until
            if (
                self._busy is not None
                and not late
                and not wait_for_readable([self._child.link], 0.0)
            ):
                return
            try:
                if self._busy is None:
                    self._send_request()
                else:
                    self._store_answer(self._child.answer(late=late))
            except Failed as error:
                self._store_answer(error)

    def close(self) -> None:
        """End it."""
        self._child.close()

    def _send_request(self) -> None:
        """Send the next request."""
        self._busy, request = self._waiting.popleft()
        self._child.seconds = min(self._child.seconds, max(0.0, self._time()))
        self._until = monotonic() + self._child.seconds
        self._child.tell(request)

    def _store_answer(self, answer: object) -> None:
        """Note an answer; of a process that has ended, nothing more can be asked."""
        assert self._busy is not None  # noqa: S101 -- something was asked for
        self._answers[self._busy] = answer
        self._busy, self._until = None, math.inf
        if isinstance(answer, Failed) and not self._child.alive:
            self._answers |= dict.fromkeys((number for number, _ in self._waiting), GONE)
            self._waiting.clear()
            self.life += 1


class _Host:
    """The searches that live in the child."""

    def __init__(self, makers: Engines, problems: Mapping[Key, Problem]) -> None:
        self._makers = makers
        self._problems = problems
        self._engines: dict[str, Engine] = {}
        self._searches: dict[Key, Search] = {}

    def answer(self, request: tuple[tuple[str, Sequence[str]], str, Any]) -> Any:  # noqa: ANN401 - JSON
        (task, by), method, argument = request
        return {"found": getattr(self, method)((task, Contender(*by)), argument)}

    def propose(self, key: Key, request: Mapping[str, Any]) -> dict[str, Any]:
        """Propose; a search that is given known times begins with them, any other gets new ones."""
        space_size = math.inf
        if request["known"] is not None:
            search = self._start_search(key, request["known"])
            if search is None:
                return {"schedules": None}
            space_size = count_schedules(search)
            if space_size < request["least"]:
                return {"schedules": [], "size": space_size}
            self._searches[key] = search
        search = self._searches[key]
        if request["news"] and hasattr(search, "observe"):
            search.observe(_parse_known(request["news"]))
        return {"schedules": search.propose(request["count"]), "size": space_size}

    def _start_search(self, key: Key, known_entries: Sequence[Mapping[str, Any]]) -> Search | None:
        problem, engine = (
            replace(self._problems[key], known=_parse_known(known_entries)),
            key[1].engine,
        )
        if engine not in self._engines:
            self._engines[engine] = self._makers[engine]()
        return self._engines[engine].search(problem)

    def learn(self, key: Key, results: Sequence[Mapping[str, Any]]) -> None:
        self._searches[key].learn(_parse_known(results))


def _parse_known(entries: Sequence[Mapping[str, Any]]) -> list[MeasuredSchedule]:
    return [MeasuredSchedule(**entry) for entry in entries]
