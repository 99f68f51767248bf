"""Format a run as Markdown, for the summary of a CI job or a pull request.

All text from models, files and tools stands in code spans and code blocks: there it cannot become
HTML, a link, a mention or a table.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from autopipe.artifacts.benchmark import BenchmarkReport, LatencyComparison
from autopipe.config.dimension import format_sizes
from autopipe.report.document import RunReport, TaskReport
from autopipe.report.escape import escape_lines, escape_text
from autopipe.report.headroom import COLUMNS, order_headroom, write_cells
from autopipe.report.units import format_mib, format_plural, format_range, format_seconds

_SLOWEST: Final = 5
"""Number of tasks in the table."""
_WARNINGS: Final = 20
_LONG: Final = 300
"""Characters of a message."""


def format_markdown(*reports: RunReport) -> str:
    """Format the reports of all builds as GitHub-flavored Markdown."""
    sections = (
        _list_head_lines,
        _list_stage_lines,
        _list_latency_lines,
        _list_gate_lines,
        _list_engine_lines,
        _list_slowest_lines,
        _list_headroom_lines,
        _list_warning_lines,
        _list_foot_lines,
    )
    blocks = [list(_list_build_lines(reports))]
    blocks += [list(section(report)) for report in reports for section in sections]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _list_build_lines(reports: Sequence[RunReport]) -> Iterator[str]:
    """Yield a row for each of several builds."""
    rows = [
        (
            format_code(report.pipeline or "pipeline"),
            f"{report.outcome} ({report.exit_code})" if report.exit_code else report.outcome,
            format_seconds(report.seconds),
            *_format_ratio(report.benchmark),
        )
        for report in reports
    ]
    if len(rows) > 1:
        yield f"## {format_plural(len(rows), 'build')}"
        yield ""
        yield from format_table(("build", "outcome", ">time", ">ratio", "to"), rows)


def _format_ratio(benchmark: BenchmarkReport | None) -> tuple[str, str]:
    """Format the ratio to the decisive reference runtime, and its name."""
    competitor = None if benchmark is None else benchmark.counted_competitor
    if benchmark is None or competitor is None:
        return "", ""
    return f"{benchmark.comparisons[competitor].ratio:.2f}", format_code(competitor)


def format_code(text: str, limit: int = _LONG) -> str:
    """Format any text as a code span on one line, also valid in a table cell."""
    inner = escape_text(text, limit).replace("|", "\u2502") or " "  # a bar would end the cell
    fence = "`" * (_find_longest_run(inner) + 1)
    pad = " " if inner[0] in "` " or inner[-1] in "` " else ""
    return f"{fence}{pad}{inner}{pad}{fence}"


def format_code_block(text: str) -> Iterator[str]:
    """Yield the lines of a code block with any text."""
    inner = escape_lines(text, 10 * _LONG)
    fence = "`" * max(3, _find_longest_run(inner) + 1)
    yield from (fence, *inner.split("\n"), fence)


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; a column with a name that starts with `>` is right-aligned."""
    names = [name.removeprefix(">") for name in header]
    rules = ["--:" if name.startswith(">") else "---" for name in header]
    for row in (names, rules, *rows):
        yield f"| {' | '.join(row)} |"


def _list_head_lines(report: RunReport) -> Iterator[str]:
    name = format_code(report.pipeline or "pipeline")
    yield f"## {name} {report.outcome} in {format_seconds(report.seconds)}"
    if report.error is not None:
        yield ""
        yield f"Exit code {report.exit_code}:"
        yield ""
        yield from format_code_block(report.error)


def _list_stage_lines(report: RunReport) -> Iterator[str]:
    rows = [
        (
            format_code(stage.stage),
            stage.state.replace("_", " "),
            "" if stage.seconds is None else format_seconds(stage.seconds),
            format_code(stage.summary) if stage.summary else "",
        )
        for stage in report.stages
    ]
    if rows:
        yield from format_table(("stage", "state", ">time", ""), rows)


def _list_latency_lines(report: RunReport) -> Iterator[str]:
    benchmark = report.benchmark
    if benchmark is None:
        if any(stage.stage == "benchmark" and stage.state == "skipped" for stage in report.stages):
            yield "Latency was not measured by this run, and times are never taken from the store."
        return
    yield f"### Latency on {format_code(benchmark.machine.gpu or benchmark.machine.cpu)}"
    yield ""
    header = ("contender", ">median", ">quartiles", ">autopipe relative to it", "")
    rows = (
        (format_code(f"{one.name} {one.version}"), format_seconds(one.latency.median),
         format_range(one.latency.low, one.latency.high),
         *_format_comparison(benchmark.comparisons.get(one.name)))
        for one in (benchmark.ours, *benchmark.competitors)
    )  # fmt: skip
    yield from format_table(header, rows)
    if benchmark.best:
        comparison = benchmark.comparisons[benchmark.best]
        yield ""
        yield (
            f"Against the best competitor, {format_code(benchmark.best)}: {comparison.ratio:.2f}, "
            f"{comparison.verdict}."
        )
    yield from _list_size_lines(benchmark)
    again = sum(bool(timed.disturbed) for timed in benchmark.rounds)
    if benchmark.disturbed:
        yield ""
        yield f"Disturbed: {format_code(benchmark.disturbed)}."
    elif again:
        yield ""
        yield (
            f"{format_plural(again, 'round')} of {len(benchmark.rounds)} left out, for others "
            "disturbed."
        )


def _format_comparison(comparison: LatencyComparison | None) -> tuple[str, str]:
    return ("", "") if comparison is None else (f"{comparison.ratio:.2f}", comparison.verdict)


def _list_size_lines(benchmark: BenchmarkReport) -> Iterator[str]:
    """Yield the table of sizes, for a model with dynamic shapes."""
    if not benchmark.at_sizes:
        return
    names = [competitor.name for competitor in benchmark.competitors]
    columns = [column for name in names for column in (f">{format_code(name)}", ">ratio", "")]
    yield ""
    yield "The times above are of the first of these sizes."
    yield ""
    rows = []
    for at in benchmark.at_sizes:
        row = [
            format_code(format_sizes(at.sizes)),
            "likely" if at.likely else "generic",
            format_seconds(at.ours.median),
        ]
        for name in names:
            theirs = at.competitors.get(name)
            row.append(format_seconds(theirs.median) if theirs else "")
            row += _format_comparison(at.comparisons[name] if theirs else None)
        rows.append(row)
    yield from format_table(("sizes", "library", ">autopipe", *columns), rows)


def _list_gate_lines(report: RunReport) -> Iterator[str]:
    rows = [
        (format_code(gate.gate), str(gate.outcome), format_code(gate.found))
        for gate in report.gates
    ]
    if rows:
        yield "### Gates"
        yield ""
        yield from format_table(("gate", "outcome", ""), rows)


def _list_engine_lines(report: RunReport) -> Iterator[str]:
    if not report.tasks:
        return
    groups: dict[tuple[str, str], list[TaskReport]] = defaultdict(list)
    for task in report.tasks:
        groups[task.engine, task.implementation].append(task)
    rows = [
        (
            format_code(engine),
            format_code(implementation),
            str(len(tasks)),
            f"{_sum_shares(tasks):.1%}",
        )
        for (engine, implementation), tasks in groups.items()
    ]
    yield f"### Schedules of {format_plural(len(report.tasks), 'task')}"
    yield ""
    header = ("engine", "implementation", ">tasks", ">share of time")
    yield from format_table(header, sorted(rows, key=lambda row: (-int(row[2]), row)))
    if report.shares is not None:
        yield ""
        yield f"Of the kept tasks' time {report.shares.format_parts()} in this store."


def _sum_shares(tasks: Iterable[TaskReport]) -> float:
    return sum(task.share or 0.0 for task in tasks)


def _list_slowest_lines(report: RunReport) -> Iterator[str]:
    times = ((task.in_model or task.seconds, task) for task in report.tasks)
    timed_tasks = [(one * task.calls, task) for one, task in times if one is not None]
    timed_tasks.sort(key=lambda pair: -pair[0])
    rows = [
        (
            format_code(task.name, 100),
            str(task.calls),
            format_seconds(total),
            format_code(task.engine),
        )
        for total, task in timed_tasks[:_SLOWEST]
    ]
    if rows:
        claims = (
            f"; {format_plural(report.claimed, 'time')} in all only claimed"
            if report.claimed
            else ""
        )
        yield f"### Slowest tasks, as measured when they were tuned{claims}"
        yield ""
        yield from format_table(("task", ">calls", ">time of all calls", "engine"), rows)
    if rows and report.benchmark is not None and not report.benchmark.at_sizes:
        model_time, parts = (
            report.benchmark.ours.latency.median,
            sum(total for total, _ in timed_tasks),
        )
        untimed_count = len(report.tasks) - len(timed_tasks)
        note = f", with {format_plural(untimed_count, 'task')} not timed" if untimed_count else ""
        inside = sum(task.in_model is not None for _, task in timed_tasks)
        note += f"; {inside} of {len(timed_tasks)} were timed inside the model" if inside else ""
        yield ""
        yield (
            f"All timed tasks come to {format_seconds(parts)}; the model took "
            f"{format_seconds(model_time)}{note}."
        )


def _list_headroom_lines(report: RunReport) -> Iterator[str]:
    if not report.headroom:
        return
    tasks = order_headroom(report.headroom)[:_SLOWEST]
    left = sum(task.left for task in report.headroom)
    yield f"### Left to gain above the bounds of the machine: {left:.0%} of the untuned time"
    yield ""
    rows = [
        (format_code(task.name, 100), *write_cells(task), format_code(task.ended)) for task in tasks
    ]
    yield from format_table(COLUMNS, rows)


def _list_warning_lines(report: RunReport) -> Iterator[str]:
    if not report.warnings:
        return
    yield f"### {format_plural(len(report.warnings), 'warning').capitalize()}"
    yield ""
    for warning in report.warnings[:_WARNINGS]:
        yield f"- {format_code(warning.stage)}: {format_code(warning.message)}"
    if len(report.warnings) > _WARNINGS:
        yield f"- and {len(report.warnings) - _WARNINGS} more"


def _list_foot_lines(report: RunReport) -> Iterator[str]:
    if report.package is not None:
        size = format_mib(report.package.size)
        yield (
            f"{format_code(report.package.path)}, {size}, sha256 "
            f"{format_code(report.package.sha256)}"
        )


def _find_longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
