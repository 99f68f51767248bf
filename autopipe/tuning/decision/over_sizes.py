"""One setting for all sizes: the best for a kernel with dynamic shapes over specialized sizes.

Such a kernel is not timed itself. A template gives it the tiles that it gives kernels for likely
sizes, and these are tuned. The fastest settings of each such size are repeated with those of
the others. So each has a time at every specialized size, and the one with the minimum product of
times wins: all sizes weigh alike, however long they take.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Final

from autopipe.artifacts.tuning import DynamicSetting
from autopipe.errors import StageError
from autopipe.safety.maker import Maker
from autopipe.schedules.templates.template import serves_dynamic
from autopipe.tasks.task import Task
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.task_state import TaskState

_GUESTS: Final = 4
"""Most settings of a kernel that are repeated at all its specialized sizes."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kernel with dynamic shapes, and its tasks at specialized sizes."""

    workload: str
    members: tuple[TaskState, ...]
    """Its tuned tasks at specialized sizes, in the order of the sizes."""


def find_families(tasks: Sequence[Task], states: Sequence[TaskState]) -> list[Family]:
    """Return the kernels with dynamic shapes that have tuned tasks at specialized sizes."""
    tuned_states = {state.task.workload: state for state in states}
    families = []
    for task in tasks:
        workloads = (task.likely, *task.also_likely)
        members = tuple(
            tuned_states[name] for name in workloads if name is not None and name in tuned_states
        )
        if members:
            families.append(Family(task.workload, members))
    return families


def invite_guests(
    families: Sequence[Family], journal: Journal, maker: Maker
) -> dict[str, list[Proposal]]:
    """Select the schedules that are repeated for the sake of other sizes, by workload.

    These are the fastest settings at each specialized size that also fit the others.
    """
    guests: dict[str, dict[Proposal, None]] = defaultdict(dict)
    for family in families:
        for proposal in _list_candidates(family, journal, maker):
            for state in family.members:
                guests[state.task.workload][proposal] = None
    return {workload: list(proposals) for workload, proposals in guests.items()}


def pick_settings(
    families: Sequence[Family], journal: Journal
) -> dict[str, dict[str, DynamicSetting]]:
    """Select the winning settings, by the workload at specialized sizes that they are recorded for.

    Each names its workload with dynamic shapes. The setting of the record itself is omitted.
    """
    settings: dict[str, dict[str, DynamicSetting]] = defaultdict(dict)
    for family in families:
        member_times = [(state, _find_repeat_times(state, journal)) for state in family.members]
        member_times = [(state, times) for state, times in member_times if times]
        if not member_times:
            continue
        every = [times for _, times in member_times]
        common = [proposal for proposal in every[0] if all(proposal in times for times in every)]
        fit = [proposal for proposal in common if serves_dynamic(proposal.schedule)]
        if not fit:
            continue
        proposal = min(fit, key=lambda one: sum(math.log(times[one]) for times in every))
        first = member_times[0][0]
        winner = journal.winner(first)
        if winner is None or winner.proposal != proposal:
            settings[first.task.workload][family.workload] = DynamicSetting(
                engine=proposal.by.engine, implementation=proposal.by.implementation,
                schedule=proposal.schedule,
            )  # fmt: skip
    return dict(settings)


def _find_repeat_times(state: TaskState, journal: Journal) -> Mapping[Proposal, float]:
    """Return the seconds of each schedule among the repeats of a task."""
    return {one.proposal: one.median for one in journal.repeats(state)}


def _list_candidates(family: Family, journal: Journal, maker: Maker) -> Iterator[Proposal]:
    """Yield the fastest settings of all members, the winners first, that fit every member."""
    member_schedules = (_list_dynamic_schedules(state, journal) for state in family.members)
    interleaved_schedules = (
        one for place in zip_longest(*member_schedules) for one in place if one is not None
    )
    fit = (
        proposal
        for proposal in dict.fromkeys(interleaved_schedules)
        if all(_is_applicable(state, proposal, journal, maker) for state in family.members)
    )
    yield from islice(fit, _GUESTS)


def _list_dynamic_schedules(state: TaskState, journal: Journal) -> list[Proposal]:
    """Return the two fastest schedules of a task that serve every size."""
    ranked_proposals = dict.fromkeys(one.proposal for one in journal.ranked(state))
    return list(islice((one for one in ranked_proposals if serves_dynamic(one.schedule)), 2))


def _is_applicable(state: TaskState, proposal: Proposal, journal: Journal, maker: Maker) -> bool:
    """Tell whether a schedule of another size applies to this task."""
    if not state.admits(proposal.by) or journal.has_verdict(state, proposal, "failed"):
        return False
    if any(one.proposal == proposal for one in journal.evidence(state)):
        return True
    try:
        maker.replay(state.task.name, *proposal)
    except StageError:
        return False
    return True
