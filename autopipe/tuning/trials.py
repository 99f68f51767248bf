"""Trials: schedules are measured, written down and counted, as far as the budget goes."""

import math
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final

from autopipe.config.tuning import Budget
from autopipe.measure.measurement import Measurement, Repeatable
from autopipe.measure.turn import TurnTimeout
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.replay import apply_schedule, replay_schedule
from autopipe.tuning.clock import describe_surroundings
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.runners.runner import Measurer
from autopipe.tuning.task_state import TaskState

LATE: Final = "the time is spent"
"""Why tuning ended, where it was that."""

_TOGETHER: Final = 8
"""Candidates of several tasks that are built at a time; more would keep the clock from being
looked at."""


@dataclass(frozen=True, slots=True)
class Underway:
    """Schedules that are being measured."""

    proposals: Sequence[tuple[TaskState, Proposal]]
    measurements: Generator[tuple[int, Measurement]]
    """Places and measurements, as they come."""
    written: Collection[int] = ()
    """Places of those that are on the disk."""


@dataclass(frozen=True, slots=True)
class Trials:
    """Measures the proposals of all tasks within the budget."""

    states: Sequence[TaskState]
    budget: Budget
    journal: Journal
    measurer: Measurer
    conditions: Conditions
    report_progress: Callable[[], None]
    """Called after each trial."""
    touched: int = 0
    """Bytes that the model touches between two calls of a kernel; 0 to time in a loop."""

    def left(self) -> int:
        """Return how many trials are left for all tasks."""
        return self.budget.trials - sum(state.trials for state in self.states)

    def seconds_left(self) -> float:
        """Return how much of the time is left; infinite where it is not limited."""
        time = math.inf if self.budget.time is None else self.budget.time
        return time - self.journal.session.elapsed

    def late(self) -> bool:
        """Tell whether the time is spent."""
        return self.seconds_left() <= 0

    def allowance(self, state: TaskState) -> int:
        """Return how many trials are left for a task."""
        return int(min(self.left(), (self.budget.trials_per_task or math.inf) - state.trials))

    def verdict(self, state: TaskState) -> str | None:
        """Return why a task gets no more trials, or None if it may go on."""
        if state.trials >= (self.budget.trials_per_task or math.inf):
            return "its trials are spent"
        if state.stale >= (self.budget.early_stop or math.inf):
            return f"no gain in {state.stale} trials"
        return None

    @property
    def width(self) -> int:
        """How many candidates are measured at a time."""
        return self.measurer.width

    def begin(self, state: TaskState, proposals: Sequence[Proposal]) -> "Underway":
        """Start measuring competing schedules of one task.

        If several are measured at a time, they start at once.
        """
        return self._start_measuring(
            [(state, proposal) for proposal in proposals], state.best, same_task=True
        )

    def finish(self, underway: "Underway") -> list[tuple[Proposal, Measurement]]:
        """Wait for all of them; fewer come back where the time ends before.

        Returns what was measured in the order of the proposals.
        """
        measurements = self._collect_measurements(underway)
        return [
            (underway.proposals[place][1], measurements[place]) for place in sorted(measurements)
        ]

    def each(self, proposals: Sequence[tuple[TaskState, Proposal]]) -> None:
        """Measure schedules of several tasks, as far as the budget goes."""
        while proposals and self.left() > 0 and not self.late():
            count = min(max(_TOGETHER, 2 * self.width), self.left())
            self._collect_measurements(
                self._start_measuring(proposals[:count], math.inf, same_task=False)
            )
            proposals = proposals[count:]

    def _start_measuring(
        self, proposals: Sequence[tuple[TaskState, Proposal]], best: float, *, same_task: bool
    ) -> "Underway":
        candidates = [self.candidate(*proposal) for proposal in proposals]
        written_places: set[int] = set()

        def write(place: int, measurement: Measurement) -> None:
            """Write a measurement that arrived out of order: a killed run would lose it."""
            self.journal.write(*proposals[place], measurement)
            written_places.add(place)

        if hasattr(self.measurer, "tell"):
            self.measurer.tell = write
        until = monotonic() + self.seconds_left()
        measurements = self.measurer.measure(candidates, best, same_task=same_task, until=until)
        return Underway(proposals, measurements, written_places)

    def _collect_measurements(self, underway: "Underway") -> dict[int, Measurement]:
        """Collect the measurements by place, written in the order of arrival."""
        measurements_by_place: dict[int, Measurement] = {}
        with closing(underway.measurements) as measurements, suppress(TurnTimeout):
            for place, measurement in measurements:
                state, proposal = underway.proposals[place]
                if place not in underway.written:
                    self.journal.write(state, proposal, measurement)
                state.count(measurement.median)
                state.bandit.note_time(proposal.by.implementation, measurement.median)
                measurements_by_place[place] = measurement
                self.report_progress()
                if self.late():
                    break
        return measurements_by_place

    def candidate(self, state: TaskState, proposal: Proposal) -> Repeatable:
        """Build the candidate of a schedule, which a child process replays and compiles."""
        by, schedule = proposal
        module = state.implementations.get(by.implementation)
        if module is None:  # the child reports that there is none here
            make = partial(
                replay_schedule, state.module, by.implementation, schedule, self.conditions
            )
        else:
            make = partial(apply_schedule, module, schedule, self.conditions)
        surroundings = describe_surroundings(state.task, self.touched) if self.touched else None
        return Repeatable(
            state.task.name, by.implementation, schedule, make, surroundings, state.module
        )
