"""The step of tuning that compares finalists inside the built model, if that can run here."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final

import tvm

from autopipe.measure.in_model import InModel, ModelSource
from autopipe.pipeline.events import Progress, Warn
from autopipe.processes.contained import Failed
from autopipe.processes.failure import How
from autopipe.tuning.check_schedules import check_winners, find_passing
from autopipe.tuning.deadline import COMPARISONS
from autopipe.tuning.decision.compare import Decided, FinalistComparison
from autopipe.tuning.decision.finalists import Finalists, plan_others, select_finalists
from autopipe.tuning.decision.model_runs import Limits, TooLate
from autopipe.tuning.setup import Setup
from autopipe.tuning.sized_models import SizedModel, load_sized_models
from autopipe.tuning.task_state import TaskState

_SHORTEST: Final = 3.0
"""Seconds in which no model is built and run often enough."""

_MIN_PART_OF_TIME: Final = 0.8
"""Part of its time without which the comparison is not begun, and tasks are repeated instead: a
run that was interrupted inside the model has less."""

_MAX_PART_OF_REST: Final = 0.75
"""Part of the time left that the comparison may take if the search ended early; the rest is for
repeats if it fails."""


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """Compares schedules inside the model."""

    setup: Setup

    def compare(self, states: Sequence[TaskState]) -> tuple[Decided, ...]:
        """Append the evidence of in-model comparisons, one at each specialized size; return them.

        That is not possible everywhere: this clock does not see a GPU. There the trials decide.
        """
        models = self._list_models()
        comparisons: list[Decided] = []
        done_workloads: set[str] = set()
        for at, model in enumerate(models):
            seconds = self._allot_seconds(len(models), at)
            comparison = self._compare_in(model, done_workloads, states, seconds)
            if comparison is not None:
                comparisons.append(comparison)
                self._append_evidence(
                    comparison, [s for s in states if s.task.workload not in done_workloads]
                )
                done_workloads |= {task.workload for task in model.tasks}
        check_winners(states, self.setup.checks)
        return tuple(comparisons)

    def _allot_seconds(self, models: int, done: int) -> float:
        """Return the seconds for the next of `models` models, of which some are done."""
        share = self.setup.deadline.in_model / models
        left = self.setup.deadline.left() / (models - done)
        return share if left == math.inf else min(left, max(share, _MAX_PART_OF_REST * left))

    def _append_evidence(self, comparison: Decided, states: Sequence[TaskState]) -> None:
        for state in states:
            evidence = comparison.evidence.get(state.task.workload, ())
            self.setup.checks.journal.append(state, *evidence)

    def _list_models(self) -> Sequence[SizedModel]:
        if self.setup.tasks.lowered is None or self.setup.deadline.in_model < _SHORTEST:
            return ()
        if self.setup.deadline.left() < max(
            _SHORTEST, _MIN_PART_OF_TIME * self.setup.deadline.in_model
        ):
            self.setup.deadline.left_out[COMPARISONS] += 1
            return ()
        return list(load_sized_models(self.setup.tasks.lowered, self.setup.tasks.every))

    def _compare_in(
        self,
        model: SizedModel,
        done_workloads: Collection[str],
        states: Sequence[TaskState],
        seconds: float,
    ) -> Decided | None:
        """Compare the finalists in one model, without `done_workloads`; None if it failed."""
        end = monotonic() + seconds
        called_states = _find_called(model, states)
        most = self.setup.plan.tuning.finalists
        finalists = select_finalists(
            called_states, self.setup.checks, most=most, done_workloads=done_workloads
        )
        if not finalists:
            return None
        at = "".join(f", {name} {size}" for name, size in model.sizes.items())
        text = f"building the model with its finalists{at}"
        self.setup.emit(Progress(stage="tune", message=text, remaining=seconds))
        source = self._gather_source(model, finalists)
        find_passing_names = partial(find_passing, called_states, checks=self.setup.checks)
        limits = Limits(end - monotonic(), self.setup.bench.turn.taken, find_passing_names)
        try:
            with InModel(source, self.setup.deadline.left) as built_model:
                comparison = FinalistComparison(
                    built_model, model.tasks, finalists, limits
                ).decide()
        except TooLate:
            self._give_up(f"there is no time to run the model with its finalists{at}")
            return None
        except Failed as error:
            if error.how is How.HUNG:
                self._give_up(f"there is no time to build the model{at}")
            else:
                text = f"the trials decide, for the model with their finalists{at} failed: {error}"
                self.setup.emit(Warn(stage="tune", message=text))
            return None
        sizes = {"sizes": dict(model.sizes)} if model.sizes else {}
        return replace(comparison, report=comparison.report.model_copy(update=sizes))

    def _give_up(self, why: str) -> None:
        self.setup.deadline.left_out[COMPARISONS] += 1
        self.setup.emit(Progress(stage="tune", message=f"the trials decide: {why}"))

    def _gather_source(self, model: SizedModel, finalists: Sequence[Finalists]) -> ModelSource:
        finalist_names = {entry.state.task.name for entry in finalists}
        rest = [task for task in model.tasks if task.name not in finalist_names]
        policy, failures = self.setup.plan.policy, self.setup.checks.failures
        other_modules = plan_others(rest, self.setup.tasks, policy=policy, failures=failures)
        bodies: dict[str, Sequence[tvm.IRModule]]
        bodies = {name: (other_modules[task.name],) for task in rest for name in task.functions}
        bodies |= {name: one.modules for one in finalists for name in one.state.task.functions}
        conditions = self.setup.bench.conditions
        return ModelSource(model.module, bodies, conditions.target, conditions.hardware.cores)


def _find_called(model: SizedModel, states: Sequence[TaskState]) -> list[TaskState]:
    """Return the states of the tasks of a model, as they are named and called in it."""
    tasks = {task.workload: task for task in model.tasks}
    return [replace(s, task=tasks[s.task.workload]) for s in states if s.task.workload in tasks]
