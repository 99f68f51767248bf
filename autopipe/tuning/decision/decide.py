"""Decide the tasks after the search: inside the model, or by repeats where no model can run."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from autopipe.pipeline.counted import Watch
from autopipe.tuning.check_schedules import check_winners
from autopipe.tuning.decision.compare import Decided
from autopipe.tuning.decision.extras import make_extras, measure_extras
from autopipe.tuning.decision.in_model import ModelComparison
from autopipe.tuning.decision.over_sizes import Family, invite_guests
from autopipe.tuning.decision.repeat import find_undecided, measure_repeats
from autopipe.tuning.setup import Setup
from autopipe.tuning.trials import Trials


def decide_tasks(trials: Trials, families: Sequence[Family], setup: Setup) -> tuple[Decided, ...]:
    """Append the evidence that decides the tasks; return the comparisons inside the model.

    Settings of kernels with dynamic shapes are repeated at all specialized sizes. Tasks that are
    not timed inside the model are repeated at last.
    """
    states, checks, deadline = trials.states, setup.checks, setup.deadline
    guests = invite_guests(families, checks.journal, checks.maker)
    extras, watch = make_extras(checks.maker, guests=guests), Watch("tune", setup.emit)
    runner = setup.bench.runner
    repeat = partial(measure_repeats, runner=runner, deadline=deadline, watch=watch)
    watch.begin("checking the winners of the trials")
    check_winners(states, checks)
    deadline.kept = deadline.in_model
    hosts = [state for state in states if state.task.workload in guests]
    repeat(replace(trials, states=hosts), extras=extras)
    if deadline.in_model:
        measure_extras(trials, runner=runner, extras=extras, deadline=deadline, watch=watch)
    check_winners(states, checks)
    deadline.kept = 0.0
    comparisons = ModelComparison(setup).compare(states)
    undecided = find_undecided(states, checks.journal)
    repeat(replace(trials, states=undecided), extras=extras)
    check_winners(states, checks)
    return comparisons
