"""Runs searches in child processes, so that a crash or hang of one costs that arm only.

The searches of a child share a cost model. When it dies, the next request starts another one, and
each search begins there anew from what has been measured. With one child all tasks learn from each
other; with more of them, those of a child do, and as many tasks propose at a time.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from autopipe.processes.contained import Failed
from autopipe.processes.failure import How
from autopipe.processes.link import wait_for_readable
from autopipe.schedules.engines.engine import MeasuredSchedule, Problem
from autopipe.schedules.policy import Contender
from autopipe.tuning.search.search_process import GONE, Engines, Key, SearchProcess
from autopipe.tuning.search.worth import check_space_size
from autopipe.tuning.task_state import TaskState

_LOOK: Final = 0.2
"""Seconds between two looks at whether a process is late."""


def make_search_key(state: TaskState, by: Contender) -> Key:
    """Build the key of the search of an arm for a task."""
    return state.task.name, by


def _report_no_news(_: TaskState, __: Contender) -> Sequence[MeasuredSchedule]:
    return ()


class _AskedProposal(NamedTuple):
    """A request for a proposal."""

    number: int
    """The number of the request to its process."""
    life: int
    """The life of that process in which it was asked."""
    fresh: bool
    """Whether the search begins with it."""


class OutOfTime(Exception):  # noqa: N818 - names an event
    """The time of the run ended while a search was busy. It was ended, and is not to blame."""


class Searcher:
    """Asks searches for proposals. Fork-safe only while this process has a single thread."""

    def __init__(  # noqa: PLR0913 - one for each thing that may end a search
        self,
        engines: Engines,
        problems: Mapping[Key, Problem],
        list_known: Callable[[TaskState, Contender], Sequence[MeasuredSchedule]],
        least: int = 1,
        suspects: Iterable[Key] = (),
        *,
        left: Callable[[], float] = lambda: math.inf,
        process_count: int = 1,
        news: Callable[[TaskState, Contender], Sequence[MeasuredSchedule]] = _report_no_news,
    ) -> None:
        """Start the processes; `list_known` returns the measured schedules when a search begins.

        `news` returns the schedules that other runs measured since then, of the same arm.

        A design space of fewer schedules than `least` is not searched. The searches of `suspects`
        failed in an earlier run: they are not restarted. `left` returns the seconds that are left
        for searches: one that takes longer is ended. The tasks are divided among `process_count`
        processes, which search concurrently.
        """
        tasks = list(dict.fromkeys(task for task, _ in problems))
        self.width = max(1, min(process_count, len(tasks)))
        """How many tasks propose at a time."""
        processes = [SearchProcess(engines, problems, left) for _ in range(self.width)]
        self._processes = processes
        self._home = {task: processes[n % self.width] for n, task in enumerate(tasks)}
        self._known = list_known
        self._news = news
        self._least = least
        self._open: dict[Key, int] = {}
        """Started searches, and the generation of their process."""
        self._failed = set(suspects)
        self._left = left
        self._asked: dict[Key, _AskedProposal] = {}
        """The requests for proposals that were begun."""
        self._told: dict[Key, int] = {}
        """The requests that send searches the times of their last proposals."""

    def begin(self, state: TaskState, by: Contender, count: int) -> None:
        """Start a proposal; `propose` then returns its result."""
        self._asked[make_search_key(state, by)] = self._ask(state, by, count)

    def propose(self, state: TaskState, by: Contender, count: int) -> list[str] | None:
        """Return schedules to measure, [] if there are no more, None if the engine has none ever.

        A search that raises, crashes or hangs begins once more. Raises Failed the second time,
        NotWorth if its design space is too small, and OutOfTime.
        """
        key = make_search_key(state, by)
        while True:
            try:
                self._wait_for_learning(key)
                return self._receive_schedules(state, by, count)
            except Failed as error:
                self._restart_search(key, error)

    def learn(
        self, state: TaskState, by: Contender, measurements: Sequence[MeasuredSchedule]
    ) -> None:
        """Send a search the times of its last proposals; an ended search is skipped.

        The next proposal of the search raises its failure.
        """
        key = make_search_key(state, by)
        if self._is_open(key):
            entries = [asdict(known) for known in measurements]
            self._told[key] = self._home[key[0]].ask([key, "learn", entries])

    def wait_until_idle(self) -> None:
        """Wait until all searches have answered, so that nothing disturbs a timing."""
        while links := [process.link for process in self._processes if process.link]:
            wait_for_readable(links, _LOOK)
            for process in self._processes:
                process.go_on()

    def close(self) -> None:
        """End the children."""
        for process in self._processes:
            process.close()

    def _ask(self, state: TaskState, by: Contender, count: int) -> _AskedProposal:
        key = make_search_key(state, by)
        fresh = not self._is_open(key)
        known_entries = [asdict(known) for known in self._known(state, by)] if fresh else None
        news = [] if fresh else [asdict(heard) for heard in self._news(state, by)]
        request = {"known": known_entries, "news": news, "least": self._least, "count": count}
        process = self._home[key[0]]
        return _AskedProposal(process.ask([key, "propose", request]), process.life, fresh)

    def _receive_schedules(self, state: TaskState, by: Contender, count: int) -> list[str] | None:
        key = make_search_key(state, by)
        asked = self._asked.pop(key, None) or self._ask(state, by, count)
        answer = self._wait_for_answer(key, asked.number)
        if asked.fresh and answer["schedules"] is not None:
            check_space_size(answer["size"], self._least)
            self._open[key] = asked.life
        schedules: list[str] | None = answer["schedules"]
        return schedules

    def _wait_for_learning(self, key: Key) -> None:
        """Wait until a search has learned its last results. Raises Failed."""
        if key in self._told:
            self._wait_for_answer(key, self._told.pop(key))

    def _is_open(self, key: Key) -> bool:
        return self._open.get(key) == self._home[key[0]].life

    def _restart_search(self, key: Key, error: Failed) -> None:
        """Restart a search from the measured schedules, but only once."""
        self._open.pop(key, None)
        self._asked.pop(key, None)
        if error is GONE:
            return
        if key in self._failed:
            raise error
        self._failed.add(key)

    def _wait_for_answer(self, key: Key, number: int) -> Any:  # noqa: ANN401 - JSON
        """Wait for an answer, while all processes go on. Raises Failed, and OutOfTime."""
        while (answer := self._home[key[0]].taken(number)) is None:
            wait_for_readable([process.link for process in self._processes if process.link], _LOOK)
            for process in self._processes:
                process.go_on()
        if not isinstance(answer, Failed):
            return answer["found"]
        if answer.how is How.HUNG and self._left() <= 0:
            raise OutOfTime from None
        raise answer
