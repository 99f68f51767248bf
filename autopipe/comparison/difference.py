"""The differences of two builds, as a value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from autopipe.artifacts.signature import LIBRARY
from autopipe.benchmarking.baseline import OURS
from autopipe.comparison.build import Build, BuiltTask, ContenderTime, Fields, Time
from autopipe.comparison.matching import TaskChange, match_tasks
from autopipe.comparison.timing import TimingVerdict, judge_times
from autopipe.comparison.values import Change, list_value_changes

TOPICS: Final = (
    "outcome", "configuration", "target", "versions", "sources", "size", "accuracy", "artifacts",
)  # fmt: skip
KNOBS: Final = "knobs"
"""How tasks were scheduled in detail, which only a lock says."""
_PATH: Final = "model.path"
"""Where the model lay, which a package does not say."""


class Left(Enum):
    """Why a topic is not compared."""

    NEITHER = "neither says it"
    OLD = "only the old one says it"
    NEW = "only the new one says it"
    APART = "they say it in other words"


@dataclass(frozen=True, slots=True)
class LatencyChange:
    """How long a run of the model takes one contender, before and after."""

    contender: str
    versions: tuple[str, str]
    old: Time
    new: Time
    verdict: TimingVerdict


@dataclass(frozen=True, slots=True)
class Difference:
    """What two builds differ in."""

    old: Build
    new: Build
    facts: Mapping[str, tuple[Change, ...]]
    """The changes of each topic that both tell of; none where they say the same."""
    tasks: tuple[TaskChange, ...] | None
    """Every task of the two, in the order of the new build, those that are gone last."""
    latency: tuple[LatencyChange, ...] | None
    """The build, then the rivals that were timed in both."""
    left: Mapping[str, Left]
    """Topics that are not compared, and why."""

    @property
    def same(self) -> bool:
        """Whether nothing differs but times within the noise."""
        return not (
            any(self.facts.values())
            or any(task.differs for task in self.tasks or ())
            or any(timing.verdict.conclusive for timing in self.latency or ())
        )


def compare_builds(old: Build, new: Build) -> Difference:
    """Compare two builds in all that both tell of."""
    facts: dict[str, tuple[Change, ...]] = {}
    left: dict[str, Left] = {}
    shared = old.kind is not new.kind
    elsewhere = not shared and old.machine != new.machine
    for topic in TOPICS:
        before, after = old.facts.get(topic), new.facts.get(topic)
        if before is None or after is None:
            left[topic] = _explain_omission(before, after)
            continue
        if shared:
            before, after = _keep_shared_fields(topic, before, after)
        if shared and not before:
            left[topic] = Left.APART
        else:
            facts[topic] = list_value_changes(before, after)
    tasks = latency = None
    if old.tasks is None or new.tasks is None:
        left["tasks"] = _explain_omission(old.tasks, new.tasks)
    else:
        tasks = match_tasks(
            old.tasks, new.tasks, shared=shared, elsewhere=elsewhere,
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
    """Return whether both make the same code of the same schedule."""
    both = [build.facts.get(topic) for topic in ("target", "versions") for build in (old, new)]
    return None not in both and both[0] == both[1] and both[2] == both[3]


def _has_same_code(old: Build, new: Build) -> bool:
    """Return whether both have the same library, or the same package with all that is in it."""
    digests = [build.facts.get("artifacts", {}) for build in (old, new)]
    names = digests[0].keys() & digests[1].keys()
    names = {LIBRARY} & names or {name for name in names if name.endswith(".tar")}
    return bool(names) and all(digests[0][name] == digests[1][name] for name in names)


def _has_schedules(tasks: tuple[BuiltTask, ...]) -> bool | None:
    """Tell whether the file says how tasks were scheduled; None if not."""
    return True if all("schedule" in task.decisions for task in tasks) else None


def _explain_omission(old: object, new: object) -> Left:
    if old is None and new is None:
        return Left.NEITHER
    return Left.NEW if old is None else Left.OLD


def _keep_shared_fields(topic: str, old: Fields, new: Fields) -> tuple[Fields, Fields]:
    """Keep what both files speak of: in a configuration whole sections, else single values."""

    def known(name: str) -> str:
        return name.partition(".")[0] if topic == "configuration" else name

    both = {known(name) for name in old} & {known(name) for name in new}
    before, after = (
        {name: value for name, value in values.items() if known(name) in both and name != _PATH}
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
    """Judge the build, unless a rival that is the same program moved: then the machine did."""
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
