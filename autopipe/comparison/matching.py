"""Match the tasks of two builds, and compare each pair."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice

from autopipe.comparison.build import (
    ABSENT,
    BuiltTask,
    Change,
    Time,
    flatten_document,
    list_value_changes,
)
from autopipe.comparison.timing import TimingVerdict, judge_times

_Pair = tuple[BuiltTask | None, BuiltTask | None]


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A task before and after; one of the two is None for a new or removed task."""

    old: BuiltTask | None
    new: BuiltTask | None
    changes: tuple[Change, ...]
    """The changed decisions."""
    verdict: TimingVerdict | None
    """The verdict on its times; None if one of them is unknown."""

    @property
    def task(self) -> BuiltTask:
        """The new task, or the old one if it was removed."""
        task = self.new or self.old
        assert task is not None  # noqa: S101 -- one of them is never None
        return task

    @property
    def times(self) -> tuple[Time | None, Time | None]:
        """Its times before and after."""
        return self.old.time if self.old else None, self.new.time if self.new else None

    @property
    def steps(self) -> tuple[str, ...]:
        """The diff of its trace, as lines with `+` and `-`; empty for an unchanged trace."""
        sides = [side for side in (self.old, self.new) if side]
        if len(sides) > 1 and None in [side.steps for side in sides] and not self._rescheduled:
            return ()  # a package and a report have no trace
        old, new = (side.steps or () if side else () for side in (self.old, self.new))
        diff_lines = unified_diff(old, new, n=0, lineterm="")
        return tuple(
            f"{line[0]} {line[1:]}" for line in islice(diff_lines, 2, None) if line[0] != "@"
        )

    @property
    def _rescheduled(self) -> bool:
        return any(change.name == "schedule" for change in self.changes)

    @property
    def differs(self) -> bool:
        """Whether it changed, or is conclusively faster or slower."""
        is_conclusive = self.verdict is not None and self.verdict.conclusive
        is_changed = self.old is None or self.new is None or bool(self.changes or self.steps)
        return is_changed or is_conclusive


def match_tasks(
    old: Sequence[BuiltTask],
    new: Sequence[BuiltTask],
    *,
    shared: bool,
    elsewhere: bool,
    same_compiler: bool = False,
) -> tuple[TaskChange, ...]:
    """Match and compare tasks; `shared` compares only the decisions that both have.

    With the `same_compiler` for the same target, equal schedules of equal loops are equal code.
    """
    return tuple(
        TaskChange(before, after, _list_task_changes(before, after, shared=shared), verdict)
        for before, after in _pair_tasks(old, new, shared=shared)
        for verdict in [
            _judge_task_times(before, after, elsewhere=elsewhere, same_compiler=same_compiler)
        ]
    )


def _pair_tasks(
    old: Sequence[BuiltTask], new: Sequence[BuiltTask], *, shared: bool
) -> Iterator[_Pair]:
    """Pair tasks by workload, then the rest by name and ops."""
    left = list(old)
    partners: dict[int, BuiltTask] = {}
    for alike in (
        lambda task: (task.workload, task.name),
        lambda task: task.workload,
        lambda task: (task.name, None if shared else repr(task.decisions.get("ops"))),
    ):
        index: dict[object, list[BuiltTask]] = defaultdict(list)
        for task in left:
            index[alike(task)].append(task)
        for place, task in enumerate(new):
            if place not in partners and (candidates := index.get(alike(task))):
                partners[place] = candidates.pop(0)
        matched_ids = {id(task) for task in partners.values()}
        left = [task for task in left if id(task) not in matched_ids]
    yield from ((partners.get(place), task) for place, task in enumerate(new))
    yield from ((task, None) for task in left)


def _list_task_changes(
    old: BuiltTask | None, new: BuiltTask | None, *, shared: bool
) -> tuple[Change, ...]:
    if old is None or new is None:
        return ()
    before, after = dict(old.decisions), dict(new.decisions)
    if shared:
        before = {name: value for name, value in before.items() if name in new.decisions}
        after = {name: value for name, value in after.items() if name in old.decisions}
    if (
        _find_template_name(before) == _find_template_name(after) is not None
    ):  # otherwise a knob has no counterpart
        before, after = dict(flatten_document(before)), dict(flatten_document(after))
    names = {"name": old.name, "workload": old.workload}
    return list_value_changes(names | before, {"name": new.name, "workload": new.workload} | after)


def _find_template_name(decisions: Mapping[str, object]) -> object:
    schedule = decisions.get("schedule")
    return schedule.get("template") if isinstance(schedule, Mapping) else None


def _judge_task_times(
    old: BuiltTask | None, new: BuiltTask | None, *, elsewhere: bool, same_compiler: bool
) -> TimingVerdict | None:
    if old is None or new is None or old.time is None or new.time is None:
        return None
    if old.workload != new.workload:
        return TimingVerdict.OTHER_LOOPS
    schedules = [task.decisions.get("schedule", ABSENT) for task in (old, new)]
    if same_compiler and schedules[0] == schedules[1] != ABSENT:
        return TimingVerdict.SAME_CODE
    return judge_times(old.time, new.time, elsewhere=elsewhere)
