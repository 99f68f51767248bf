"""Compute the differences of two builds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from autopipe.artifacts.signature import LIBRARY
from autopipe.benchmarking.baseline import OURS
from autopipe.comparison.build import (
    Build,
    BuiltTask,
    Change,
    ContenderTime,
    Fields,
    Time,
    list_value_changes,
)
from autopipe.comparison.matching import TaskChange, match_tasks
from autopipe.comparison.timing import TimingVerdict, judge_times

TOPICS: Final = (
    "outcome", "configuration", "target", "versions", "sources", "size", "accuracy", "artifacts",
)  # fmt: skip
KNOBS: Final = "knobs"
"""Topic of the schedules in detail, which only a lock has."""
_PATH: Final = "model.path"
"""Path of the model, which a package does not have."""


class Left(Enum):
    """The reason why a topic is not compared."""

    NEITHER = "neither says it"
    OLD = "only the old one says it"
    NEW = "only the new one says it"
    APART = "they say it in other words"


@dataclass(frozen=True, slots=True)
class LatencyChange:
    """The latency of one runtime before and after."""

    contender: str
    versions: tuple[str, str]
    old: Time
    new: Time
    verdict: TimingVerdict


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of two builds."""

    old: Build
    new: Build
    facts: Mapping[str, tuple[Change, ...]]
    """The changes of each topic in both files; empty for equal ones."""
    tasks: tuple[TaskChange, ...] | None
    """All tasks of both builds in the order of the new one, removed ones last."""
    latency: tuple[LatencyChange, ...] | None
    """The build, then the reference runtimes that were timed in both."""
    left: Mapping[str, Left]
    """Topics that are not compared, with the reason."""

    @property
    def same(self) -> bool:
        """Whether the builds are equal except for times within the noise."""
        return not (
            any(self.facts.values())
            or any(task.differs for task in self.tasks or ())
            or any(timing.verdict.conclusive for timing in self.latency or ())
        )


def compare_builds(old: Build, new: Build) -> Difference:
    """Compare two builds in the topics that both have."""
    facts: dict[str, tuple[Change, ...]] = {}
    left: dict[str, Left] = {}
    shared_only = old.kind is not new.kind
    elsewhere = not shared_only and old.machine != new.machine
    for topic in TOPICS:
        before, after = old.facts.get(topic), new.facts.get(topic)
        if before is None or after is None:
            left[topic] = _explain_omission(before, after)
            continue
        if shared_only:
            before, after = _keep_shared_fields(topic, before, after)
        if shared_only and not before:
            left[topic] = Left.APART
        else:
            facts[topic] = list_value_changes(before, after)
    tasks = latency = None
    if old.tasks is None or new.tasks is None:
        left["tasks"] = _explain_omission(old.tasks, new.tasks)
    else:
        tasks = match_tasks(
            old.tasks, new.tasks, shared=shared_only, elsewhere=elsewhere,
            same_compiler=_has_same_compiler(old, new),
        )  # fmt: skip
        knobs = [_has_schedules(old.tasks), _has_schedules(new.tasks)]
        left |= {} if None not in knobs else {KNOBS: _explain_omission(*knobs)}
    if old.latency is None or new.latency is None:
        left["latency"] = _explain_omission(old.latency, new.latency)
    else:
        latency = _compare_latencies(
            old.latency, new.latency, elsewhere=elsewhere, same_code=_has_same_code(old, new)
        )
    return Difference(old, new, facts, tasks, latency, left)


def _has_same_compiler(old: Build, new: Build) -> bool:
    """Whether both compile the same schedule to the same code."""
    fact_pairs = [
        build.facts.get(topic) for topic in ("target", "versions") for build in (old, new)
    ]
    return (
        None not in fact_pairs and fact_pairs[0] == fact_pairs[1] and fact_pairs[2] == fact_pairs[3]
    )


def _has_same_code(old: Build, new: Build) -> bool:
    """Whether both have the same library, or the same package including its contents."""
    digests = [build.facts.get("artifacts", {}) for build in (old, new)]
    names = digests[0].keys() & digests[1].keys()
    names = {LIBRARY} & names or {name for name in names if name.endswith(".tar")}
    return bool(names) and all(digests[0][name] == digests[1][name] for name in names)


def _has_schedules(tasks: tuple[BuiltTask, ...]) -> bool | None:
    """Return True if all tasks have a schedule, otherwise None."""
    return True if all("schedule" in task.decisions for task in tasks) else None


def _explain_omission(old: object, new: object) -> Left:
    if old is None and new is None:
        return Left.NEITHER
    return Left.NEW if old is None else Left.OLD


def _keep_shared_fields(topic: str, old: Fields, new: Fields) -> tuple[Fields, Fields]:
    """Keep the fields of both files: whole sections of a configuration, otherwise single values."""

    def known(name: str) -> str:
        return name.partition(".")[0] if topic == "configuration" else name

    shared_names = {known(name) for name in old} & {known(name) for name in new}
    before, after = (
        {
            name: value
            for name, value in values.items()
            if known(name) in shared_names and name != _PATH
        }
        for values in (old, new)
    )
    return before, after


def _compare_latencies(
    old: Mapping[str, ContenderTime],
    new: Mapping[str, ContenderTime],
    *,
    elsewhere: bool,
    same_code: bool,
) -> tuple[LatencyChange, ...]:
    """Judge the latency, unless that of an unchanged reference runtime changed with the machine."""
    rows = list(_list_latency_changes(old, new, elsewhere=elsewhere, same_code=same_code))
    unsteady = any(
        row.contender != OURS and row.versions[0] == row.versions[1] and row.verdict.conclusive
        for row in rows
    )
    if not unsteady:
        return tuple(rows)
    return tuple(_mark_unsteady(row) if row.verdict.conclusive else row for row in rows)


def _list_latency_changes(
    old: Mapping[str, ContenderTime],
    new: Mapping[str, ContenderTime],
    *,
    elsewhere: bool,
    same_code: bool,
) -> Iterator[LatencyChange]:
    for name in sorted(old.keys() & new.keys(), key=lambda name: (name != OURS, name)):
        before, after = old[name], new[name]
        verdict = judge_times(before.time, after.time, elsewhere=elsewhere)
        if before.disturbed or after.disturbed:
            verdict = TimingVerdict.DISTURBED
        if same_code and name == OURS:
            verdict = TimingVerdict.SAME_CODE
        versions = (before.version, after.version)
        yield LatencyChange(name, versions, before.time, after.time, verdict)


def _mark_unsteady(row: LatencyChange) -> LatencyChange:
    return LatencyChange(row.contender, row.versions, row.old, row.new, TimingVerdict.UNSTEADY)
