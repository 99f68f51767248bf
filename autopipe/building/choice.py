"""Select the schedule of each task: the first of its record and fallbacks that passes the check."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import tvm

from autopipe.artifacts.library import Rejected
from autopipe.artifacts.tuning import BestRecord
from autopipe.building.prepared_checks import PreparedChecks
from autopipe.errors import StageError
from autopipe.measure.library_kernel import LibraryKernel
from autopipe.pipeline.counted import Watch
from autopipe.processes.contained import Failed
from autopipe.safety.job import Piece
from autopipe.safety.maker import Maker, Refused
from autopipe.safety.verdict import Finding, Verdict
from autopipe.schedules.engines.fallback import iterate_fallbacks
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.schedules.policy import Contender, Policy, is_allowed
from autopipe.tasks.task import Task

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """A task to be built."""

    task: Task
    workload: tvm.IRModule
    record: BestRecord | None
    """The best record of tuning; None if there is none."""
    share: float
    """Its share of the model's time."""
    likely: Sequence[BestRecord] = ()
    """For dynamic shapes, the records at specialized sizes that serve all sizes, the best first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheduled workload, and the origin of its schedule."""

    module: tvm.IRModule
    """The workload module with `main` scheduled."""
    engine: str
    """Name of the engine, or of the fallback."""
    implementation: str
    reason: str
    """Why this schedule was selected."""
    seconds: float | None = None
    """Median measured time of one call; null for a fallback."""
    schedule: str | None = None
    """The record that rebuilds it; None where nothing is scheduled."""
    rule: int | None = None
    """Index of the policy rule that matches the task; None for none."""
    checked: bool = False
    """Whether its outputs were compared with those of the reference loops."""
    unchecked: str | None = None
    """Why it was not compared."""
    rejected: tuple[Rejected, ...] = field(default=())
    """The schedules before it that computed wrong results."""


class Choices:
    """The selected schedules of all tasks, each replaced until it compiles and is right."""

    def __init__(
        self,
        asked: Sequence[Asked],
        policy: Policy,
        maker: Maker,
        checks: PreparedChecks,
        watch: Watch,
    ) -> None:
        """Select the first candidate of each task, and start compiling the reference loops."""
        self.checks = checks
        self.watch = watch
        self._chains = [_list_candidates(request, policy, maker) for request in asked]
        self.asked = asked
        # the reference loops of the first tasks are compiled while the others are planned
        places = sorted(range(len(asked)), key=lambda at: checks.has_twin(asked[at].task.name))
        chosen: dict[int, Choice] = {}
        for place in watch.each("tasks planned", places):
            chosen[place] = next(self._chains[place])
            checks.prepare(_build_suspect(asked[place], chosen[place]))
        checks.start()
        self.chosen: list[Choice] = [chosen[place] for place in range(len(asked))]
        """The selected schedule of each task, in order."""
        self._open = list(range(len(asked)))

    def check(self, kernels: Sequence[LibraryKernel | None] | None = None) -> bool:
        """Check the schedules that were not checked yet; return whether all of them were right.

        `kernels` are those of a library that has them all, in the order of the tasks. A wrong
        schedule is replaced by the next candidate, which is unchecked.
        """
        places, self._open = self._open, []
        verdicts = self.checks.judge(
            [
                replace(
                    _build_suspect(self.asked[place], self.chosen[place]),
                    kernel=kernels[place] if kernels else None,
                )
                for place in places
            ]
        )
        for place, verdict in zip(places, verdicts, strict=True):
            choice = self.chosen[place]
            if verdict.condemns:
                self.drop(place, verdict)
            else:
                right, why = verdict.finding is Finding.RIGHT, verdict.reason
                self.chosen[place] = replace(choice, checked=right, unchecked=why)
                _log_choice(self.asked[place].task, choice)
        return not self._open

    def drop(self, place: int, verdict: Verdict) -> None:
        """Replace the rejected schedule of a task by the next candidate.

        Raises StageError if there is none.
        """
        following = next(self._chains[place], None)
        if following is None:
            task = self.asked[place].task
            raise StageError(
                f"task {task.name} ({', '.join(task.info.names) or task.info.kind}): nothing is"
                f" left to build it with; at the end its plain loops failed: {verdict.reason};"
                f" python {verdict.folder}/reproduce.py shows it"
            )
        self.chosen[place] = _replace_rejected(self.chosen[place], verdict, following)
        self._open.append(place)


def _build_suspect(request: Asked, choice: Choice) -> Piece:
    return Piece(
        "checking", request.task.name, request.workload, choice.engine, choice.implementation,
        choice.schedule or "", choice.module,
    )  # fmt: skip


def _log_choice(task: Task, choice: Choice) -> None:
    """Log which schedule a task is built with, and why."""
    by = f"{choice.engine} on {choice.implementation}"
    _LOG.info("%s: %s, since %s; %s", task.name, by, choice.reason, choice.schedule or "as it is")


def _list_candidates(request: Asked, policy: Policy, maker: Maker) -> Iterator[Choice]:
    """Yield the candidate schedules of a task, the best first, the unscheduled loops last."""
    task, record = request.task, request.record
    position, rule = policy.rule(task, request.share)
    reason = f"not tuned: {task.dropped}" if task.dropped else "no record"
    if record is not None:
        try:
            yield replace(_replay_record(task, record, maker), rule=position)
            reason = "its record is wrong"
        except (Refused, Failed) as error:
            reason = f"its record does not apply: {error}"
    for likely in () if record is not None else request.likely:
        try:
            replayed = _replay_record(task, likely, maker)
            yield replace(replayed, reason="record of likely sizes", seconds=None, rule=position)
            reason = "the record of likely sizes is wrong"
        except (Refused, Failed) as error:
            reason = f"the record of likely sizes does not apply: {error}"
    plans = partial(maker.plans, task.name)
    for fallback in iterate_fallbacks(policy.chain(rule), plans, partial(is_allowed, rule)):
        if fallback.planned is None:
            yield Choice(request.workload, fallback.engine, DIRECT, reason, rule=position)
        else:
            plan = fallback.planned
            yield Choice(
                plan.module, fallback.engine, plan.implementation, reason,
                schedule=plan.schedule, rule=position,
            )  # fmt: skip


def _replay_record(task: Task, record: BestRecord, maker: Maker) -> Choice:
    times = sorted(record.seconds)
    by = Contender(record.engine, record.implementation)
    module = maker.replay(task.name, by, record.schedule)
    return Choice(module, *by, "best record", times[len(times) // 2], record.schedule)


def _replace_rejected(bad: Choice, verdict: Verdict, following: Choice) -> Choice:
    """Return the next candidate, which lists a wrong predecessor as rejected."""
    origin = f"{bad.engine} on {bad.implementation}"
    if verdict.finding is Finding.FAILED:
        return replace(following, reason=f"{origin} failed", rejected=bad.rejected)
    rejection = Rejected(
        engine=bad.engine, implementation=bad.implementation, reason=verdict.reason,
        folder=verdict.folder,
    )  # fmt: skip
    return replace(following, reason=f"{origin} is wrong", rejected=(*bad.rejected, rejection))
