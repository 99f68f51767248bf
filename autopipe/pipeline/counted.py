"""Counts what a stage has done of what it has to do, and estimates the time that is left."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from autopipe.pipeline.events import Event, Progress

_T = TypeVar("_T")

INTERVAL: Final = 0.5
"""Seconds between two events: a terminal shows no more."""


class Watch:
    """Emits the progress of one stage."""

    def __init__(self, stage: str, emit: Callable[[Event], None]) -> None:
        """Take the name of the stage, and what takes its events."""
        self._stage = stage
        self._emit = emit

    def begin(self, message: str) -> None:
        """Tell what begins now, of which nothing can be counted."""
        self._emit(Progress(stage=self._stage, message=message))

    def count(self, message: str, total: int, *, is_even: bool = True) -> Callable[[int], None]:
        """Return what takes how many are done, and tells it with the time that the others take.

        `message` names what is counted, such as `tasks planned`. What is quick is not told. The
        time left is that of the mean one for each that is left; without `is_even` they are too
        different for that, and none is known before the first one is done.
        """
        begun = told = time.monotonic()

        def tell(done: int) -> None:
            nonlocal told
            now = time.monotonic()
            if not 0 <= done < total or now - told < INTERVAL:
                return
            told = now
            left = (now - begun) / done * (total - done) if is_even and done else None
            self._emit(
                Progress(stage=self._stage, message=message, done=done, total=total, remaining=left)
            )

        return tell

    def each(self, message: str, items: Sequence[_T]) -> Iterator[_T]:
        """Yield the items, and count them as `count` does."""
        tell = self.count(message, len(items))
        for done, item in enumerate(items):
            tell(done)
            yield item
