"""Count steps of the compiler for the progress of a stage, which this package cannot import.

A stage installs its counter with `count_with`; the passes and frontends below it call
`count_steps`, which has no effect without a counter.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Protocol, TypeVar

from autopipe.host.copy_file import count_mib

_T = TypeVar("_T")

ReportDone = Callable[[int], None]
"""Receives the number of finished steps."""


class StepCounter(Protocol):
    """Starts a count of steps."""

    def __call__(self, message: str, total: int, *, is_even: bool) -> ReportDone:
        """Start a count of `total` steps, which take equal time if `is_even`."""
        ...


def _count_nothing(message: str, total: int, *, is_even: bool) -> ReportDone:  # noqa: ARG001
    return lambda _: None


_current: ContextVar[StepCounter] = ContextVar("step_counter", default=_count_nothing)


@contextmanager
def count_with(counter: StepCounter) -> Iterator[None]:
    """Install a counter for `count_steps` inside of this context."""
    token = _current.set(counter)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def join_counts(runs: int) -> Iterator[None]:
    """Count `runs` equal lists of steps as a single list, so that the time left is that of all."""
    begin, before = _current.get(), 0
    report: ReportDone | None = None

    def count(message: str, total: int, *, is_even: bool) -> ReportDone:
        nonlocal before, report
        report, offset = report or begin(message, runs * total, is_even=is_even), before
        before += total
        joint_report = report
        return lambda done: joint_report(offset + done)

    with count_with(count):
        yield


def count_steps(message: str, total: int, *, is_even: bool = True) -> ReportDone:
    """Start a count of `total` steps; the result receives the number of finished ones.

    `message` names the steps, such as `passes run`. Without `is_even` steps are too different to
    estimate the remaining time from their mean.
    """
    return _current.get()(message, total, is_even=is_even)


def count_each(message: str, items: Sequence[_T], *, is_even: bool = True) -> Iterator[_T]:
    """Yield the items, and count them as steps."""
    return report_each(count_steps(message, len(items), is_even=is_even), items)


def count_bytes(message: str, total: int, *, passes: int = 1) -> ReportDone:
    """Start a count in MiB, such as `MiB packed`; the result receives the bytes of each part.

    `total` is in bytes, each of which is a part of several `passes`.
    """
    return count_mib(partial(count_steps, message), total, passes=passes)


def report_each(report: ReportDone, items: Iterable[_T], before: int = 0) -> Iterator[_T]:
    """Yield the items, and report the number of finished ones, counted from `before`."""
    for count, item in enumerate(items, before):
        report(count)
        yield item
