"""Work on a module in parts, by children that take one part after the other."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self

from autopipe.building.refusals import unwrap_answer, wrap_refusals
from autopipe.compiler.pass_observer import add_measured_passes, list_pass_times, observe_part
from autopipe.processes import contained
from autopipe.processes.contained import Child
from autopipe.processes.link import wait_for_readable

SECONDS_OF_EACH: Final = 10.0
"""Seconds that each task or kernel adds to the time limit of its compilation."""


class PartWorkers:
    """Children that work on the parts of a module."""

    def __init__(
        self,
        parts: Sequence[Sequence[str]],
        work: Callable[[int], Any],
        seconds: float | None = None,
    ) -> None:
        """Set the parts, without starting a child.

        `parts` are the names of the kernels or modules of each; `work` takes its number and returns
        JSON. `seconds` is the time limit of a part, by default one that grows with its kernels.
        """
        self._parts = parts
        self._work = work
        self._waiting = deque(range(len(parts)))
        self._running: dict[Child, int] = {}
        """The number of the part that each child works on."""
        growing = contained.SECONDS + SECONDS_OF_EACH * max(map(len, parts), default=0)
        self._seconds = growing if seconds is None else seconds
        self.results: dict[int, Any] = {}
        """The result of each finished part, by its number."""

    def begin(self, most: int) -> None:
        """Start children until `most` run, which are forks of this process and end with it."""
        while self._waiting and len(self._running) < most:
            begin = partial(wrap_refusals, self._work_on_part)
            self._begin_part(Child(begin, seconds=self._seconds))

    def await_part(self, most: int) -> float | None:
        """Wait until a further part is finished; return the share of names that are by then.

        None if all are. Starts children as `begin` does. Raises Failed if a part crashes, hangs or
        raises an error that a kernel causes, and any other error of ours as it is.
        """
        self.begin(most)
        if not self._running:
            return None
        ready = wait_for_readable([child.link for child in self._running], self._seconds)
        child = next(child for child in self._running if child.link in ready or not ready)
        answer = unwrap_answer(child.answer(late=not ready))
        add_measured_passes(answer["passes"])
        self.results[self._running.pop(child)] = answer["result"]
        self._begin_part(child)
        finished = sum(len(self._parts[number]) for number in self.results)
        return finished / sum(map(len, self._parts))

    def close(self) -> None:
        """End the children that still work."""
        for child in self._running:
            child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin_part(self, child: Child) -> None:
        """Make a child work on the next part, or end it if there is none."""
        if self._waiting:
            self._running[child] = self._waiting.popleft()
            child.tell(self._running[child])
        else:
            child.close()

    def _work_on_part(self, number: int) -> Mapping[str, Any]:
        """Work on a part, in a child; return the result, and the times of passes."""
        with observe_part(f"part{number}"):
            result = self._work(number)
            return {"result": result, "passes": list_pass_times()}
