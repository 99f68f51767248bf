"""Reports the progress of a stage, and estimates the remaining time."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from autopipe.host.copy_file import count_mib
from autopipe.pipeline.events import Emit, Progress

_T = TypeVar("_T")

INTERVAL: Final = 0.5
"""Seconds between two events: a terminal shows no more."""


class Watch:
    """Emits the progress of one stage."""

    def __init__(self, stage: str, emit: Emit) -> None:
        """Set the name of the stage, and the sink of its events."""
        self._stage = stage
        self._emit = emit

    def begin(self, message: str) -> None:
        """Report the begin of a step whose progress cannot be counted."""
        self._emit(Progress(stage=self._stage, message=message))

    def count(self, message: str, total: int, *, is_even: bool = True) -> Callable[[int], None]:
        """Return a function that takes the number of items done and emits the progress.

        `message` names the items, such as `tasks planned`. At most two events a second are
        emitted. The remaining time is the mean time of an item by the number of items left; it is
        not known before the first item is done, nor without `is_even`, where items differ too much.
        """
        start = last_report = time.monotonic()

        def tell(done_count: int) -> None:
            nonlocal last_report
            now = time.monotonic()
            if not 0 <= done_count < total or now - last_report < INTERVAL:
                return
            last_report = now
            left = (
                (now - start) / done_count * (total - done_count)
                if is_even and done_count
                else None
            )
            self._emit(
                Progress(
                    stage=self._stage, message=message, done=done_count, total=total, remaining=left
                )
            )

        return tell

    def count_bytes(self, message: str, total: int, *, passes: int = 1) -> Callable[[int], None]:
        """Return a function that takes the bytes of a part and emits the progress in MiB.

        `total` is in bytes, each of which is a part of several `passes`.
        """
        return count_mib(partial(self.count, message), total, passes=passes)

    def each(self, message: str, items: Sequence[_T]) -> Iterator[_T]:
        """Yield the items, and report progress like `count`."""
        tell = self.count(message, len(items))
        for done_count, item in enumerate(items):
            tell(done_count)
            yield item
