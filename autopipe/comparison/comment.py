"""Format a build for reviewers: latency, size, accuracy, and the changes in words.

All text from models and files stands in code spans, as in `report/markdown.py`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from autopipe.artifacts.benchmark import BenchmarkReport
from autopipe.comparison.difference import Difference
from autopipe.comparison.matching import TaskChange
from autopipe.comparison.tables import (
    Row,
    Table,
    list_omitted_topics,
    list_tables,
    list_unchanged_topics,
)
from autopipe.comparison.timing import TimingVerdict
from autopipe.report.document import RunReport
from autopipe.report.markdown import format_code, format_code_block, format_table
from autopipe.report.units import format_mib, format_spread

_SHOWN: Final = 20
"""Largest number of sentences of a topic, and of names in a sentence."""
_LONG: Final = 100
"""Largest number of characters of a value."""
_IN_TASKS: Final = {
    "workload": "with other loops, as the model or its lowering changed",
    "schedule": "with another schedule", "engine": "with another schedule",
    "implementation": "with another schedule", "calls": "called more or less often",
}  # fmt: skip
"""Descriptions of changed fields of a task."""


def format_comment(difference: Difference, run: RunReport | None = None) -> str:
    """Format a comment on a pull request in GitHub's Markdown: the run, then the differences.

    A file that is compared with itself has no section on differences.
    """
    return "\n".join(_list_lines(difference, run)) + "\n"


def _list_lines(difference: Difference, run: RunReport | None) -> Iterator[str]:
    yield f"### {format_code(difference.new.pipeline)}: {_format_title(difference, run)}"
    if run is not None:
        yield ""
        yield from _list_figures(run)
    if not difference.same:
        yield ""
        kinds = {difference.old.kind, difference.new.kind}
        scope = f" in the {next(iter(kinds))}" if len(kinds) == 1 else ""
        yield f"**What changed{scope}**"
        yield ""
        yield from _list_sentences(difference)
    for label, topics in (
        ("The same", list_unchanged_topics(difference)),
        ("Not compared", list_omitted_topics(difference)),
    ):
        if topics and not _is_self_comparison(difference):
            yield ""
            yield f"{label}: {', '.join(topics)}."


def _is_self_comparison(difference: Difference) -> bool:
    return difference.same and difference.old.file == difference.new.file


def _format_title(difference: Difference, run: RunReport | None) -> str:
    change = f"{difference.new.kind} {'unchanged' if difference.same else 'changed'}"
    if run is None:
        return f"the {change}"
    outcome = f"{run.outcome} with exit code {run.exit_code}" if run.exit_code else run.outcome
    return f"run {outcome}" if _is_self_comparison(difference) else f"run {outcome}, {change}"


def _list_figures(run: RunReport) -> Iterator[str]:
    """Yield the results of the run, an error first."""
    if run.error is not None:
        yield from format_code_block(run.error)
        yield ""
    rows = [
        ("latency", _format_latency(run.benchmark)),
        ("size", "no package" if run.package is None else format_mib(run.package.size)),
        ("accuracy", _format_accuracy(run)),
    ]
    rows += [
        (format_code(gate.gate), f"{gate.outcome}: {format_code(gate.found)}") for gate in run.gates
    ]
    if run.warnings:
        rows.append(("warnings", f"{len(run.warnings)}, in the summary of the job"))
    yield from format_table(("", ""), rows)


def _format_latency(benchmark: BenchmarkReport | None) -> str:
    if benchmark is None:
        return "not measured by this run"
    ours = benchmark.ours.latency
    against = [
        f"{found.ratio:.2f} of {format_code(f'{one.name} {one.version}')} ({found.verdict})"
        for one in benchmark.competitors
        for found in [benchmark.comparisons[one.name]]
    ]
    disturbance = [f"disturbed: {format_code(benchmark.disturbed)}"] if benchmark.disturbed else []
    spread = format_spread(ours.median, ours.low, ours.high)
    return ", ".join([spread, *against, *disturbance])


def _format_accuracy(run: RunReport) -> str:
    if any(stage.stage == "verify" and stage.state == "failed" for stage in run.stages):
        return "**wrong**, as above"
    return "not compared" if run.verification is None else format_code(run.verification.summary())


def _list_sentences(difference: Difference) -> Iterator[str]:
    for section in list_tables(difference):
        if section.title == "tasks":
            yield from _list_task_lines(difference.tasks or ())
        else:
            yield from _list_topic_lines(section)


def _list_topic_lines(section: Table) -> Iterator[str]:
    for row in section.rows[:_SHOWN]:
        yield f"- {section.title}: {_format_fact(row)}"
    if len(section.rows) > _SHOWN:
        yield f"- {section.title}: and {len(section.rows) - _SHOWN} more"


def _format_fact(row: Row) -> str:
    note = f" ({row.note})" if row.note else ""
    if row.old == "-":
        return f"{format_code(row.name)} is new: {format_code(row.new, _LONG)}{note}"
    if row.new == "-":
        return f"{format_code(row.name)} is gone; it was {format_code(row.old, _LONG)}{note}"
    return (
        f"{format_code(row.name)} is {format_code(row.new, _LONG)}, was "
        f"{format_code(row.old, _LONG)}{note}"
    )


def _list_task_lines(tasks: Iterable[TaskChange]) -> Iterator[str]:
    """Yield a sentence for each kind of change with the names of its tasks."""
    groups: dict[str, list[TaskChange]] = defaultdict(list)
    for task in tasks:
        for kind in _classify_change(task) if task.differs else ():
            groups[kind].append(task)
    for kind, members in groups.items():
        names = [_format_task_name(task) for task in members[:_SHOWN]]
        suffix = [f"and {len(members) - _SHOWN} more"] if len(members) > _SHOWN else []
        yield f"- tasks: {len(members)} {kind}: {', '.join([*names, *suffix])}"


def _classify_change(task: TaskChange) -> list[str]:
    if task.old is None:
        return ["new"]
    if task.new is None:
        return ["gone"]
    changed_fields = {change.name.partition(".")[0] for change in task.changes}
    descriptions = [_IN_TASKS[name] for name in _IN_TASKS if name in changed_fields]
    if task.verdict in {TimingVerdict.FASTER, TimingVerdict.SLOWER}:
        descriptions.append(f"{task.verdict}, as tuning measured them")
    if task.steps and not descriptions:
        return ["with other steps under the same digest"]
    return list(dict.fromkeys(descriptions)) or ["with other details"]


def _format_task_name(task: TaskChange) -> str:
    """Format the name of a task with the changes of its engine and its trace."""
    notes = [
        f"{format_code(str(change.old), _LONG)} → {format_code(str(change.new), _LONG)}"
        for change in task.changes if change.name in {"engine", "implementation"}
    ]  # fmt: skip
    if task.steps:
        notes.append(f"{len(task.steps)} steps differ")
    name = format_code(task.task.name, _LONG)
    return f"{name} ({', '.join(notes)})" if notes else name
