"""Select the schedules that are compared inside the built model, and those of all other tasks.

A trial guesses how a model calls a kernel. So the fastest schedules of the heaviest tasks are run
inside the model itself, and may change places there.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import tvm

from autopipe.compiler import module_io
from autopipe.compiler.labels.op_info import annotate_workload
from autopipe.processes.contained import Failed
from autopipe.safety.failures import Failures
from autopipe.safety.maker import Maker, Refused
from autopipe.schedules.engines.fallback import iterate_fallbacks
from autopipe.schedules.policy import Policy, is_allowed
from autopipe.tasks.task import Task
from autopipe.tuning.check_schedules import Checks, find_passing
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.setup import ModelTasks
from autopipe.tuning.task_state import TaskState

_MAX_FINALIST_SLOWDOWN: Final = 1.5
"""A schedule this many times slower than the winner in trials is no finalist, unless untuned."""

_WEIGHT: Final = 0.005
"""Part of the time of all tasks that a task has to take for its finalists to be worth a build."""


@dataclass(frozen=True, slots=True)
class Finalists:
    """Of one task: the winner of its trials, then the schedules that may win in its place."""

    state: TaskState
    proposals: tuple[Proposal, ...]
    modules: tuple[tvm.IRModule, ...]
    held: int = 0
    """Rank of the incumbent: the schedule of an untuned build, which has to be beaten inside the
    model, or the winner of the trials where that failed."""

    @property
    def incumbent(self) -> Proposal:
        """The schedule that stays unless another one beats it inside the model."""
        return self.proposals[self.held]


def select_finalists(
    states: Sequence[TaskState], checks: Checks, *, most: int, done_workloads: Collection[str] = ()
) -> list[Finalists]:
    """Return the finalists of each task that has a record, `most` of a heavy one.

    `done_workloads` have their winner alone. Untuned schedules have passed their check.
    """
    finalists = _enter_finalists(states, checks, most, done_workloads)
    incumbents = {entry.state.task.workload: entry.incumbent for entry in finalists if entry.held}
    if set(find_passing(states, incumbents, checks)) != incumbents.keys():
        finalists = _enter_finalists(states, checks, most, done_workloads)
    return finalists


def find_heavy(states: Sequence[TaskState], journal: Journal) -> set[str]:
    """Return the workloads of the tasks that take enough time to be compared inside the model."""
    times = {
        state.task.workload: state.task.calls * state.best
        for state in states
        if journal.winner(state) is not None
    }
    total = sum(times.values())
    return {workload for workload, time in times.items() if time >= _WEIGHT * total}


def _enter_finalists(
    states: Sequence[TaskState], checks: Checks, most: int, done_workloads: Collection[str]
) -> list[Finalists]:
    heavy = find_heavy(states, checks.journal) - set(done_workloads)
    finalists = []
    for state in states:
        if checks.journal.winner(state) is not None:
            count = most if state.task.workload in heavy else 1
            task_finalists = _make_finalists(
                state, _rank_candidates(state, checks.journal), checks.maker, count
            )
            if task_finalists.proposals:
                finalists.append(task_finalists)
    return finalists


def _rank_candidates(state: TaskState, journal: Journal) -> Iterator[Proposal]:
    """Yield the winner, the untuned schedule, the other repeats, the rest.

    The untuned schedule is there whatever its time.
    """
    winner = journal.winner(state)
    assert winner is not None  # noqa: S101 - the caller has seen it
    yield winner.proposal
    limit = _MAX_FINALIST_SLOWDOWN * winner.median
    ranked_trials = journal.ranked(state)
    untuned_trials = [one for one in ranked_trials if one.proposal == state.untuned]
    for candidate in (*untuned_trials, *journal.repeats(state), *ranked_trials):
        if (
            candidate.median <= limit or candidate in untuned_trials
        ):  # its trial may have been disturbed
            yield candidate.proposal


def _make_finalists(
    state: TaskState, candidates: Iterator[Proposal], maker: Maker, count: int
) -> Finalists:
    """Return the first that make a schedule; none if the winner does not."""
    proposals: list[Proposal] = []
    modules = []
    for proposal in dict.fromkeys(candidates):
        if len(proposals) == count or proposal.body in [one.body for one in proposals]:
            continue
        try:
            modules.append(maker.replay(state.task.name, *proposal))
        except (Refused, Failed):
            if not proposals:
                break
        else:
            proposals.append(proposal)
    bodies, untuned_proposal = [proposal.body for proposal in proposals], state.untuned
    incumbent_rank = (
        bodies.index(untuned_proposal.body)
        if untuned_proposal and untuned_proposal.body in bodies
        else 0
    )
    return Finalists(state, tuple(proposals), tuple(modules), incumbent_rank)


def plan_others(
    tasks: Sequence[Task], model_tasks: ModelTasks, *, policy: Policy, failures: Failures
) -> Mapping[str, tvm.IRModule]:
    """Return the schedules of tasks without finalists, by name: those of a build."""
    texts = {task.name: model_tasks.read_workload(task) for task in tasks}
    loops = {t.name: annotate_workload(module_io.parse_json(texts[t.name]), t.info) for t in tasks}
    modules = {}
    with Maker(loops, failures) as maker:
        for task in tasks:
            _, rule = policy.rule(task, task.share)
            chain = policy.chain(rule)
            offer = next(
                iterate_fallbacks(chain, partial(maker.plans, task.name), partial(is_allowed, rule))
            )
            modules[task.name] = offer.planned.module if offer.planned else loops[task.name]
    return modules
