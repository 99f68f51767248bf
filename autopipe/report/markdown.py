"""A run as Markdown, for the summary of a CI job or a pull request.

All text that comes from models, files and tools stands in code spans and code blocks: in there, no
HTML, no link, no mention and no table is made of it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from autopipe.artifacts.benchmark import BenchmarkReport, Latency
from autopipe.config.dimension import told
from autopipe.report.document import RunReport, TaskReport
from autopipe.report.escape import escape, escape_lines
from autopipe.report.headroom import COLUMNS, order_headroom, write_cells
from autopipe.report.units import plural, seconds
from autopipe.tasks.shares import floored

_SLOWEST: Final = 5
"""Tasks that are shown."""
_WARNINGS: Final = 20
_LONG: Final = 300
"""Characters of a message."""


def markdown(*reports: RunReport) -> str:
    """Write the reports of all builds as GitHub-flavored Markdown."""
    sections = (_head, _stages, _latency, _gates, _engines, _slowest, _headroom, _warnings, _foot)
    blocks = [list(_builds(reports))]
    blocks += [list(section(report)) for report in reports for section in sections]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _builds(reports: Sequence[RunReport]) -> Iterator[str]:
    """Yield a row for each of several builds."""
    rows = [
        (
            code(report.pipeline or "pipeline"),
            f"{report.outcome} ({report.exit_code})" if report.exit_code else report.outcome,
            seconds(report.seconds),
            *_compare(report.benchmark),
        )
        for report in reports
    ]
    if len(rows) > 1:
        yield f"## {plural(len(rows), 'build')}"
        yield ""
        yield from table(("build", "outcome", ">time", ">ratio", "to"), rows)


def _compare(benchmark: BenchmarkReport | None) -> tuple[str, str]:
    """Return the ratio to the reference runtime that counts, and its name."""
    rival = None if benchmark is None else benchmark.counted_rival
    if benchmark is None or rival is None:
        return "", ""
    return f"{benchmark.comparisons[rival].ratio:.2f}", code(rival)


def code(text: str, limit: int = _LONG) -> str:
    """Return a code span that holds any text, on one line, also in a cell of a table."""
    inner = escape(text, limit).replace("|", "\u2502") or " "  # a bar would end the cell
    fence = "`" * (_longest_run(inner) + 1)
    pad = " " if inner[0] in "` " or inner[-1] in "` " else ""
    return f"{fence}{pad}{inner}{pad}{fence}"


def block(text: str) -> Iterator[str]:
    """Yield a code block that holds any text."""
    inner = escape_lines(text, 10 * _LONG)
    fence = "`" * max(3, _longest_run(inner) + 1)
    yield from (fence, *inner.split("\n"), fence)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table; a column whose name starts with `>` is aligned to the right."""
    names = [name.removeprefix(">") for name in header]
    rules = ["--:" if name.startswith(">") else "---" for name in header]
    for row in (names, rules, *rows):
        yield f"| {' | '.join(row)} |"


def _head(report: RunReport) -> Iterator[str]:
    name = code(report.pipeline or "pipeline")
    yield f"## {name} {report.outcome} in {seconds(report.seconds)}"
    if report.error is not None:
        yield ""
        yield f"Exit code {report.exit_code}:"
        yield ""
        yield from block(report.error)


def _stages(report: RunReport) -> Iterator[str]:
    rows = [
        (
            code(stage.stage),
            stage.state.replace("_", " "),
            "" if stage.seconds is None else seconds(stage.seconds),
            code(stage.summary) if stage.summary else "",
        )
        for stage in report.stages
    ]
    if rows:
        yield from table(("stage", "state", ">time", ""), rows)


def _latency(report: RunReport) -> Iterator[str]:
    benchmark = report.benchmark
    if benchmark is None:
        if any(stage.stage == "benchmark" and stage.state == "skipped" for stage in report.stages):
            yield "Latency was not measured by this run, and times are never taken from the store."
        return
    yield f"### Latency on {code(benchmark.machine.gpu or benchmark.machine.cpu)}"
    yield ""
    header = ("contender", ">median", ">quartiles", ">autopipe relative to it", "")
    rows = [
        (
            code(f"{benchmark.ours.name} {benchmark.ours.version}"),
            *_times(benchmark.ours.latency),
            "",
            "",
        )
    ]
    for rival in benchmark.rivals:
        against = benchmark.comparisons[rival.name]
        name = code(f"{rival.name} {rival.version}")
        times = _times(rival.latency)
        rows.append((name, *times, f"{against.ratio:.2f}", str(against.verdict)))
    yield from table(header, rows)
    if benchmark.best:
        found = benchmark.comparisons[benchmark.best]
        yield ""
        yield f"Against the best rival, {code(benchmark.best)}: {found.ratio:.2f}, {found.verdict}."
    yield from _at_sizes(benchmark)
    again = sum(bool(timed.disturbed) for timed in benchmark.rounds)
    if benchmark.disturbed:
        yield ""
        yield f"Disturbed: {code(benchmark.disturbed)}."
    elif again:
        yield ""
        yield f"{plural(again, 'round')} of {len(benchmark.rounds)} left out, for others disturbed."


def _at_sizes(benchmark: BenchmarkReport) -> Iterator[str]:
    """Yield the table of sizes, for a model that leaves some open."""
    if not benchmark.at_sizes:
        return
    names = [rival.name for rival in benchmark.rivals]
    columns = [column for name in names for column in (f">{code(name)}", ">ratio", "")]
    yield ""
    yield "The times above are of the first of these sizes."
    yield ""
    rows = []
    for at in benchmark.at_sizes:
        row = [code(told(at.sizes)), "likely" if at.likely else "generic", seconds(at.ours.median)]
        for name in names:
            if name in at.rivals:
                against = at.comparisons[name]
                ratio, verdict = f"{against.ratio:.2f}", str(against.verdict)
                row += [seconds(at.rivals[name].median), ratio, verdict]
            else:
                row += ["", "", ""]
        rows.append(row)
    yield from table(("sizes", "library", ">autopipe", *columns), rows)


def _times(latency: Latency) -> tuple[str, str]:
    return seconds(latency.median), f"{seconds(latency.low)} to {seconds(latency.high)}"


def _gates(report: RunReport) -> Iterator[str]:
    rows = [(code(gate.gate), str(gate.outcome), code(gate.found)) for gate in report.gates]
    if rows:
        yield "### Gates"
        yield ""
        yield from table(("gate", "outcome", ""), rows)


def _engines(report: RunReport) -> Iterator[str]:
    if not report.tasks:
        return
    groups: dict[tuple[str, str], list[TaskReport]] = defaultdict(list)
    for task in report.tasks:
        groups[task.engine, task.implementation].append(task)
    rows = [
        (code(engine), code(implementation), str(len(tasks)), f"{_share(tasks):.1%}")
        for (engine, implementation), tasks in groups.items()
    ]
    yield f"### Schedules of {plural(len(report.tasks), 'task')}"
    yield ""
    header = ("engine", "implementation", ">tasks", ">share of time")
    yield from table(header, sorted(rows, key=lambda row: (-int(row[2]), row)))
    if report.searched_share is not None:
        words = ("searched", "measured", "steady")
        parts = (report.searched_share, report.measured_share or 0, report.steady_share or 0)
        told = ", ".join(f"{floored(part)} {word}" for part, word in zip(parts, words, strict=True))
        yield ""
        yield f"Of the kept tasks' time {told} in this store."


def _share(tasks: Iterable[TaskReport]) -> float:
    return sum(task.share or 0.0 for task in tasks)


def _slowest(report: RunReport) -> Iterator[str]:
    times = ((task.in_model or task.seconds, task) for task in report.tasks)
    timed = [(one * task.calls, task) for one, task in times if one is not None]
    timed.sort(key=lambda pair: -pair[0])
    rows = [
        (code(task.name, 100), str(task.calls), seconds(total), code(task.engine))
        for total, task in timed[:_SLOWEST]
    ]
    if rows:
        claims = f"; {plural(report.claimed, 'time')} in all only claimed" if report.claimed else ""
        yield f"### Slowest tasks, as measured when they were tuned{claims}"
        yield ""
        yield from table(("task", ">calls", ">time of all calls", "engine"), rows)
    if rows and report.benchmark is not None and not report.benchmark.at_sizes:
        whole, parts = report.benchmark.ours.latency.median, sum(total for total, _ in timed)
        untimed = len(report.tasks) - len(timed)
        others = f", with {plural(untimed, 'task')} that nobody timed" if untimed else ""
        inside = sum(task.in_model is not None for _, task in timed)
        others += f"; {inside} of {len(timed)} were timed inside the model" if inside else ""
        yield ""
        yield f"All timed tasks come to {seconds(parts)}; the model took {seconds(whole)}{others}."


def _headroom(report: RunReport) -> Iterator[str]:
    if not report.headroom:
        return
    shown = order_headroom(report.headroom)[:_SLOWEST]
    left = sum(task.left for task in report.headroom)
    yield f"### Left to gain above the bounds of the machine: {left:.0%} of the untuned time"
    yield ""
    rows = [(code(task.name, 100), *write_cells(task), code(task.ended)) for task in shown]
    yield from table(COLUMNS, rows)


def _warnings(report: RunReport) -> Iterator[str]:
    if not report.warnings:
        return
    yield f"### {plural(len(report.warnings), 'warning').capitalize()}"
    yield ""
    for warning in report.warnings[:_WARNINGS]:
        yield f"- {code(warning.stage)}: {code(warning.message)}"
    if len(report.warnings) > _WARNINGS:
        yield f"- and {len(report.warnings) - _WARNINGS} more"


def _foot(report: RunReport) -> Iterator[str]:
    if report.package is not None:
        size = f"{report.package.size / 2**20:.1f} MiB"
        yield f"{code(report.package.path)}, {size}, sha256 {code(report.package.sha256)}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
