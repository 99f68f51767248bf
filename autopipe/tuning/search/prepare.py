"""Prepares tasks for tuning: rule, arms, initial candidates and records of each."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile

from autopipe.config.schedules import Rule
from autopipe.records.store import Tally
from autopipe.safety.maker import Maker
from autopipe.schedules.engines.fallback import UNSCHEDULED, Fallback, iterate_fallbacks
from autopipe.schedules.policy import Contender, Policy, is_allowed
from autopipe.tasks.task import Task
from autopipe.tuning.bandit import Arm, ArmStats, Bandit
from autopipe.tuning.check_schedules import Checks
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.setup import ModelTasks
from autopipe.tuning.task_state import TaskState


def prepare_tasks(
    tasks: ModelTasks,
    shares: Mapping[int, float],
    *,
    policy: Policy,
    checks: Checks,
    before: Sequence[TaskState] = (),
) -> list[TaskState]:
    """Return the states of all tasks, with these shares of the model's time, by index of task.

    The schedules that need no search take a while to make. So those of the states `before` are
    taken over where the task falls under the same rule.
    """
    earlier_starts = {(state.task.index, state.bandit.position): state.starts for state in before}
    journal = checks.journal
    tallies = journal.store.trials(journal.session.name)
    shared_stats: dict[str, ArmStats] = {}
    states = []
    for task in tasks.tuned:
        position, rule = policy.rule(task, shares[task.index])
        bandit = Bandit(rule, position, _list_arms(rule, task, checks.maker), shared_stats)
        starts = earlier_starts.get((task.index, position))
        tally = tallies.get(task.workload, Tally(0, 0))
        state = TaskState(
            task, tasks.texts[task.name], tasks.modules[task.name],
            _plan_candidates(rule, task, policy, checks.maker) if starts is None else starts,
            bandit, shares[task.index], tally.trials, tally.failed,
            implementations=checks.maker.implementations(task.name),
        )  # fmt: skip
        _restore_trials(state, journal)
        states.append(state)
    return states


def _list_arms(rule: Rule, task: Task, maker: Maker) -> dict[Contender, Arm]:
    """Create the arms that may search a schedule, without any trials."""
    every = maker.implementations(task.name)
    return {
        Contender(engine, name): Arm()
        for engine in rule.engines
        for name in every
        if is_allowed(rule, engine, name)
    }


def _plan_candidates(rule: Rule, task: Task, policy: Policy, maker: Maker) -> dict[Contender, str]:
    """Return the schedules of the first fallback that has any, by arm."""
    plans = partial(maker.plans, task.name)
    fallbacks = iterate_fallbacks(policy.chain(rule), plans, partial(is_allowed, rule))
    return {
        Contender(offer.engine, offer.planned.implementation): offer.planned.schedule
        for offer in _take_first_engine(fallbacks)
        if offer.planned is not None
    }


def _take_first_engine(fallbacks: Iterator[Fallback]) -> Iterator[Fallback]:
    first = next(fallbacks)
    if first.engine != UNSCHEDULED:
        yield first
        yield from takewhile(lambda offer: offer.engine == first.engine, fallbacks)


def _restore_trials(state: TaskState, journal: Journal) -> None:
    """Restore a task from its stored records, of this session or another."""
    arms = state.bandit.arms
    rows = journal.rows(state)
    session_rows = {row.id for row in rows if row.record.session == journal.session.name}
    state.recall((row.record.median, row.id in session_rows) for row in rows)
    for row in rows:
        by, seconds = Proposal.of(row.record).by, row.record.median
        state.bandit.note_time(by.implementation, seconds)
        if by in arms:
            arms[by].best = min(arms[by].best, seconds)
            if row.id in session_rows:
                arms[by].trials += 1
                arms[by].stats.batches = 1
    winner = journal.winner(state)
    if winner is not None:
        state.best = winner.median
    if state.trials:
        state.history.append(state.best)
