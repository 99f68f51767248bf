"""The search loop: gives batches of trials to tasks until the budget is spent."""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from autopipe.processes.contained import Failed
from autopipe.schedules.engines.engine import MeasuredSchedule
from autopipe.schedules.policy import Contender
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.search.scheduler import Scheduler
from autopipe.tuning.search.searcher import OutOfTime, Searcher
from autopipe.tuning.search.worth import NotWorth
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import LATE, Trials, Underway

_FIRST: Final = 8
"""Trials of a batch that a task gets if the budget has them."""

_FIRST_OF_ARM: Final = 4
"""Trials of the first batch of an arm; each next batch doubles, up to a full one."""

_ROUNDS: Final = 3
"""Batches that every task could have, at least, before the batch size grows."""


_AHEAD: Final = 2
"""Trials that are handed out for each that is measured at a time."""


_PART: Final = 8
"""At most this part of the budget is in flight: proposals ignore unmeasured candidates."""


def choose_batch_size(trials: int, tasks: int, most: int) -> int:
    """Return the number of candidates of a batch: few where the budget is small."""
    share = trials // max(1, tasks)
    return max(1, min(most, max(share // _ROUNDS, min(_FIRST, share))))


@dataclass(frozen=True, slots=True)
class TuningLoop:
    """Gives batches of trials to tasks until the budget is spent."""

    trials: Trials
    scheduler: Scheduler
    batch: int
    """Trials of a task at a time."""
    proposer: Searcher
    failed: Callable[[TaskState, Contender, Failed], None]
    """Called with a search that failed; may raise StageError to end it all."""
    set_aside: Callable[[], None] = lambda: None
    """Called after each batch: stops the tasks in which too little can be gained."""

    def run(self) -> str:
        """Tune, and return why it ended.

        While candidates are measured, another task proposes. Proposals and times are waited for in
        the order in which they were begun, so that the order of answers decides nothing.
        """
        states = self.trials.states
        aside = sum(state.stopped is not None for state in states)
        for state in states:  # a resumed run may have left little to do
            state.stopped = state.stopped or self.trials.verdict(state)
        requests: deque[_Asked] = deque()
        steps: deque[_Step] = deque()
        while requests or steps or any(state.stopped is None for state in states):
            over = self._explain_end((*requests, *steps))
            idle = self._list_idle_tasks((*requests, *steps))
            if over and not (requests or steps):
                return over
            if idle and not over and not self._is_full(requests, steps):
                self._ask(self.scheduler(idle), requests, steps)
            elif requests and not (steps and self._is_saturated(steps)):
                self._start_batch(requests.popleft(), steps)
            else:
                self._finish_batch(steps.popleft())
        judge_note = f"; {aside} of {len(states)} are not worth a search (tasks.judge)"
        return f"no task has anything left to try{judge_note if aside else ''}"

    def _list_idle_tasks(self, flying: Iterable["_Asked | _Step"]) -> list[TaskState]:
        """List the tasks without a batch in flight, if one of them may go on."""
        busy = {id(each.state) for each in flying}
        idle = [state for state in self.trials.states if id(state) not in busy]
        return idle if any(state.stopped is None for state in idle) else []

    def _explain_end(self, flying: Iterable["_Asked | _Step"]) -> str | None:
        """Return why nothing more is begun, if so."""
        if self.trials.left() <= _count_trials(flying):
            return "all trials are spent"
        return LATE if self.trials.late() else None

    def _is_full(self, requests: Collection["_Asked"], steps: Collection["_Step"]) -> bool:
        """Tell whether nothing more is to be proposed for now."""
        flying, most = (
            _count_trials(requests) + _count_trials(steps),
            self.trials.budget.trials // _PART,
        )
        blind = flying > 0 and flying >= most
        return blind or len(requests) >= self.proposer.width

    def _is_saturated(self, steps: Iterable["_Step"]) -> bool:
        """Tell whether enough is measured at a time."""
        return _count_trials(steps) >= _AHEAD * self.trials.width

    def _ask(self, state: TaskState, requests: "deque[_Asked]", steps: Collection["_Step"]) -> None:
        """Request one batch of a task from the arm that its bandit selects."""
        by = state.bandit.select()
        if by is None:
            state.stopped = state.bandit.explain_end()
            return
        arm = state.bandit.arms[by]
        most = min(self.batch, _FIRST_OF_ARM << arm.stats.batches)
        left = self.trials.left() - _count_trials(requests) - _count_trials(steps)
        count = min(most, self.trials.allowance(state), left)
        requests.append(_Asked(state, by, count, monotonic()))
        self.proposer.begin(state, by, count)

    def _start_batch(self, request: "_Asked", steps: "deque[_Step]") -> None:
        """Start measuring a proposed batch."""
        state, by = request.state, request.by
        arm = state.bandit.arms[by]
        try:
            schedules = self.proposer.propose(state, by, request.count)
        except OutOfTime:
            return  # which ends the loop
        except (NotWorth, Failed) as error:
            self._drop_contender(state, by, error)
            return
        if schedules:
            proposals = [Proposal(by, schedule) for schedule in schedules]
            underway = self.trials.begin(state, proposals)
            steps.append(_Step(state, by, underway, state.best, request.start))
            return
        arm.out = "no design space" if schedules is None else "all schedules are tried"
        self._note_progress(state)

    def _finish_batch(self, step: "_Step") -> None:
        """Wait for the times of a batch, count them, and pass them to the search."""
        state, by = step.state, step.by
        results = self.trials.finish(step.underway)
        schedules = [MeasuredSchedule(p.schedule, found.median) for p, found in results]
        times = [measured.seconds for measured in schedules]
        state.bandit.count_batch(by, times, step.before, monotonic() - step.start)
        self.proposer.learn(state, by, schedules)
        self._note_progress(state)

    def _drop_contender(self, state: TaskState, by: Contender, error: NotWorth | Failed) -> None:
        """Exclude an arm, and record its error."""
        state.bandit.arms[by].out = str(error)
        if isinstance(error, Failed):
            self.failed(state, by, error)
        self._note_progress(state)

    def _note_progress(self, state: TaskState) -> None:
        """Note how far a task has come with a batch."""
        state.history.append(state.best)
        state.stopped = state.stopped or self.trials.verdict(state)
        self.set_aside()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A batch requested from an arm."""

    state: TaskState
    by: Contender
    count: int
    """How many trials it may become."""
    start: float
    """When it was asked for, by the monotonic clock."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A batch of an arm under measurement."""

    state: TaskState
    by: Contender
    underway: Underway
    before: float
    """The best time of the task when it was proposed."""
    start: float
    """When it was begun, by the monotonic clock."""

    @property
    def count(self) -> int:
        """How many trials it is."""
        return len(self.underway.proposals)


def _count_trials(flying: Iterable[_Asked | _Step]) -> int:
    """Return how many trials these are."""
    return sum(each.count for each in flying)
