"""Which schedule each task is built with: the first right one of its record and its fallbacks."""

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
from autopipe.safety.maker import Maker, Refused
from autopipe.safety.quarantine import Suspect
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
    """What tuning found for it; null if nothing."""
    share: float
    """Its part of the model's time."""
    likely: Sequence[BestRecord] = ()
    """Where its sizes are open, what tuning found for it at likely sizes and serves all, the best
    first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheduled workload, and how it came about."""

    module: tvm.IRModule
    """The workload module with `main` scheduled."""
    engine: str
    """Name of the engine, or of the fallback."""
    implementation: str
    reason: str
    """Why it is this one."""
    seconds: float | None = None
    """Median measured time of one call; null for a fallback."""
    schedule: str | None = None
    """How it is made again; null where nothing is scheduled."""
    rule: int | None = None
    """Which rule of the policy the task fell under; null for none."""
    checked: bool = False
    """Whether it was compared with the plain loops."""
    unchecked: str | None = None
    """Why it was not."""
    rejected: tuple[Rejected, ...] = field(default=())
    """What was wrong, and stood before it."""


class Choices:
    """The schedules of all tasks, until each of them is one that can be built."""

    def __init__(
        self,
        asked: Sequence[Asked],
        policy: Policy,
        maker: Maker,
        checks: PreparedChecks,
        watch: Watch,
    ) -> None:
        """Take the first of each task's chain, whose plain loops are compiled meanwhile."""
        self.checks = checks
        self.watch = watch
        self._chains = [_list_candidates(request, policy, maker) for request in asked]
        self.asked = asked
        self.chosen: list[Choice] = []
        """What each task is built with, in order, as far as that is known."""
        for place, chain in enumerate(watch.each("tasks planned", self._chains)):
            self.chosen.append(next(chain))
            checks.prepare(self._build_suspect(place))
        checks.start()
        self._open = list(range(len(asked)))

    def check(self, kernels: Sequence[LibraryKernel | None] | None = None) -> bool:
        """Check what was not checked yet, and return whether nothing of it was wrong.

        `kernels` are those of a library that has them all, in the order of the tasks. What is wrong
        is replaced by the next of its chain, which is yet to be checked.
        """
        judged, self._open = self._open, []
        verdicts = self.checks.judge(
            [
                self._build_suspect(place)._replace(kernel=kernels[place] if kernels else None)
                for place in judged
            ]
        )
        for place, verdict in zip(judged, verdicts, strict=True):
            choice = self.chosen[place]
            if verdict.condemns:
                self.drop(place, verdict)
            else:
                right, why = verdict.finding is Finding.RIGHT, verdict.reason
                self.chosen[place] = replace(choice, checked=right, unchecked=why)
                _log_choice(self.asked[place].task, choice)
        return not self._open

    def drop(self, place: int, verdict: Verdict) -> None:
        """Take the next of a task's chain, for a verdict on the one there is.

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

    def _build_suspect(self, place: int) -> Suspect:
        asked, choice = self.asked[place], self.chosen[place]
        return Suspect(
            asked.task.name, choice.engine, choice.implementation, choice.schedule or "",
            asked.workload, choice.module,
        )  # fmt: skip


def _log_choice(task: Task, choice: Choice) -> None:
    """Log which schedule a task is built with, and why."""
    by = f"{choice.engine} on {choice.implementation}"
    _LOG.info("%s: %s, since %s; %s", task.name, by, choice.reason, choice.schedule or "as it is")


def _list_candidates(asked: Asked, policy: Policy, maker: Maker) -> Iterator[Choice]:
    """Yield what a task may be built with, the best first; the plain loops are always the last."""
    task, record = asked.task, asked.record
    position, rule = policy.rule(task, asked.share)
    reason = f"not tuned: {task.dropped}" if task.dropped else "no record"
    if record is not None:
        try:
            yield replace(_replay_record(task, record, maker), rule=position)
            reason = "its record is wrong"
        except (Refused, Failed) as error:
            reason = f"its record does not apply: {error}"
    for likely in () if record is not None else asked.likely:
        try:
            known = _replay_record(task, likely, maker)
            yield replace(known, reason="record of likely sizes", seconds=None, rule=position)
            reason = "the record of likely sizes is wrong"
        except (Refused, Failed) as error:
            reason = f"the record of likely sizes does not apply: {error}"
    plans = partial(maker.plans, task.name)
    for found in iterate_fallbacks(policy.chain(rule), plans, partial(is_allowed, rule)):
        if found.planned is None:
            yield Choice(asked.workload, found.engine, DIRECT, reason, rule=position)
        else:
            planned = found.planned
            yield Choice(
                planned.module, found.engine, planned.implementation, reason,
                schedule=planned.schedule, rule=position,
            )  # fmt: skip


def _replay_record(task: Task, record: BestRecord, maker: Maker) -> Choice:
    times = sorted(record.seconds)
    by = Contender(record.engine, record.implementation)
    module = maker.replay(task.name, by, record.schedule)
    return Choice(module, *by, "best record", times[len(times) // 2], record.schedule)


def _replace_rejected(bad: Choice, verdict: Verdict, following: Choice) -> Choice:
    """Return what follows; what is wrong is told with it, failures are listed apart."""
    who = f"{bad.engine} on {bad.implementation}"
    if verdict.finding is Finding.FAILED:
        return replace(following, reason=f"{who} failed", rejected=bad.rejected)
    rejected = Rejected(
        engine=bad.engine, implementation=bad.implementation, reason=verdict.reason,
        folder=verdict.folder,
    )  # fmt: skip
    return replace(following, reason=f"{who} is wrong", rejected=(*bad.rejected, rejected))
