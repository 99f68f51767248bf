"""Compile the kernels of a model in parts, by children that take one part after the other."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from autopipe.artifacts.pass_time import PassTime
from autopipe.building.refusals import unwrap_answer, wrap_refusals
from autopipe.compiler.pass_observer import add_measured_passes, list_pass_times, observe_part
from autopipe.processes import contained
from autopipe.processes.contained import Child
from autopipe.processes.link import wait_for_readable

SECONDS_OF_EACH: Final = 10.0
"""Seconds that each task or kernel adds to the time limit of its compilation."""


class PartCompilers:
    """Children that compile the parts of a model."""

    def __init__(
        self, parts: Sequence[Sequence[str]], compile_part: Callable[[int], None], most: int
    ) -> None:
        """Start at most `most` children, which are forks of this process, and end with it.

        `parts` are the names of the kernels of each; `compile_part` takes its number.
        """
        self._parts = parts
        self._compile = compile_part
        self._waiting = deque(range(len(parts)))
        self._running: dict[Child, int] = {}
        """The number of the part that each child compiles."""
        self._compiled = 0
        self._seconds = contained.SECONDS + SECONDS_OF_EACH * max(map(len, parts), default=0)
        for _ in range(min(most, len(parts))):
            begin = partial(wrap_refusals, self._compile_part)
            self._begin_part(Child(begin, seconds=self._seconds))

    def await_part(self) -> float | None:
        """Wait until a further part is compiled; return the share of kernels that are by then.

        None if all are. Raises Failed if compiling a part crashes, hangs or raises an error.
        """
        if not self._running:
            return None
        ready = wait_for_readable([child.link for child in self._running], self._seconds)
        child = next(child for child in self._running if child.link in ready or not ready)
        add_measured_passes(unwrap_answer(child.answer(late=not ready)))
        self._compiled += len(self._parts[self._running.pop(child)])
        self._begin_part(child)
        return self._compiled / sum(map(len, self._parts))

    def _begin_part(self, child: Child) -> None:
        """Make a child compile the next part, or end it if there is none."""
        if self._waiting:
            self._running[child] = self._waiting.popleft()
            child.tell(self._running[child])
        else:
            child.close()

    def _compile_part(self, number: int) -> list[PassTime]:
        """Compile a part, in a child; return the times of its passes."""
        with observe_part(f"part{number}"):
            self._compile(number)
            return list_pass_times()
