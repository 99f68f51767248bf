"""The cost of a library: a package includes it only if it saves enough of the model's time.

OpenBLAS adds 24 MiB to a package. Suppose it is the fastest for three tasks and takes 3 % off the
time of all tasks there. That is not worth it at the default price of 1 % a MiB, so these tasks
are built with their fastest generated code.
"""

from collections.abc import Sequence
from typing import Final

from autopipe.libraries import LIBRARIES
from autopipe.libraries.library import Library
from autopipe.pipeline.events import Emit, Progress
from autopipe.tuning.journal import Journal
from autopipe.tuning.task_state import TaskState

_MIB: Final = 1 << 20


def leave_out_libraries(
    states: Sequence[TaskState], *, journal: Journal, price: float, emit: Emit
) -> None:
    """Leave out each library that takes less off the time of all tasks than its size costs."""
    for library in LIBRARIES:
        gain = compute_library_gain(library.name, states, journal)
        if gain is None:
            continue
        size = _compute_library_size(library) / _MIB
        least = price * size
        if gain < least:
            _exclude_library(library.name, states, journal)
            text = (
                f"{library.name} is left out: {gain:.1%} of the time is less than {least:.1%},"
                f" the price of its {size:.0f} MiB (tuning.library_price)"
            )
            emit(Progress(stage="tune", message=text))


def compute_library_gain(name: str, states: Sequence[TaskState], journal: Journal) -> float | None:
    """Return the part of the time of all tasks that a library takes off.

    None if no task is fastest with it, or if nothing else is known for one, so that it is shipped
    anyway.
    """
    total = saved_seconds = 0.0
    is_used = False
    for state in states:
        candidates = journal.ranked(state)
        without = [one.median for one in candidates if one.proposal.by.implementation != name]
        if candidates and not without:
            return None
        if candidates:
            total += state.task.calls * without[0]
        if candidates and candidates[0].proposal.by.implementation == name:
            is_used = True
            saved_seconds += state.task.calls * (without[0] - candidates[0].median)
    return saved_seconds / total if is_used else None


def _exclude_library(name: str, states: Sequence[TaskState], journal: Journal) -> None:
    for state in states:
        journal.exclude(
            state, lambda proposal: proposal.by.implementation == name, f"{name} costs too much"
        )


def _compute_library_size(library: Library) -> int:
    return sum(path.stat().st_size for path in library.located().values())
