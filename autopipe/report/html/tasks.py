"""Kernels of a build: how each is scheduled, how long it takes, and what it computes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from autopipe.report.document import TaskReport
from autopipe.report.html.elements import Content, Markup, block, element, join, lines
from autopipe.report.html.tables import Cell, TableRow, details, facts, table
from autopipe.report.html.view import BuildView
from autopipe.report.units import count, plural, seconds

_NODES: Final = 4
"""Nodes that a row names; its details name all."""


def write_tasks(view: BuildView) -> Markup:
    """Return the kernels, the slowest first."""
    report = view.report
    if not report.tasks:
        return Markup()
    shares = time_shares(report.tasks)
    order = sorted(range(len(report.tasks)), key=lambda at: (-shares[at], at))
    header = ("kernel", ">calls", "engine", "implementation", ">one call", ">all calls", ">share",
              ">GFLOPS", ">GB/s", ">estimate", "nodes")  # fmt: skip
    rows = (_row(view, at, shares[at]) for at in order)
    return lines(
        element("p", told) if (told := _explain(report.tasks)) else None,
        table("Kernels", header, rows),
        _engines(report.tasks, shares),
    )


def time_shares(tasks: Sequence[TaskReport]) -> list[float]:
    """Return each task's part of the time of all; one without a time weighs as estimated."""
    times = [all_calls(task) for task in tasks]
    timed = sum(time for time in times if time is not None)
    known = sum(
        task.share or 0.0 for task, time in zip(tasks, times, strict=True) if time is not None
    )
    scale = timed / known if timed and known else 1.0
    weights = [
        (task.share or 0.0) * scale if time is None else time
        for task, time in zip(tasks, times, strict=True)
    ]
    total = sum(weights)
    return [weight / total if total else 0.0 for weight in weights]


def all_calls(task: TaskReport) -> float | None:
    """Return the seconds of all calls in one run: inside the model where that was measured."""
    one = task.in_model or task.seconds
    return None if one is None else one * task.calls


def _explain(tasks: Sequence[TaskReport]) -> str | None:
    untimed = [task for task in tasks if all_calls(task) is None]
    estimated = sum(task.share is not None for task in untimed)
    if len(untimed) == len(tasks):
        guess = "Tuning measured none of them: shares are estimated from operations and bytes."
        return guess if estimated else None
    inside = sum(task.in_model is not None for task in tasks)
    parts = ["Times are as tuning measured them"]
    parts += [f"{inside} of {len(tasks)} inside the whole model"] if inside else []
    if estimated:
        parts.append(f"{estimated} of {len(tasks)} were not timed and weigh as estimated")
    unknown = len(untimed) - estimated
    parts += [f"nothing is known of {unknown} of {len(tasks)}"] if unknown else []
    return "; ".join(parts) + ". GB/s counts each argument once."


def _row(view: BuildView, at: int, share: float) -> TableRow:
    task = view.report.tasks[at]
    one, every = task.in_model or task.seconds, all_calls(task)
    estimate = None if task.share is None else f"{task.share:.1%}"
    known = one is not None or task.share is not None
    more = f" and {len(task.nodes) - _NODES} more" if len(task.nodes) > _NODES else ""
    return TableRow((
        Cell(details(task.name, _about(task), id=view.anchor(f"kernel-{at}"))),
        Cell(task.calls, task.calls), task.engine, task.implementation,
        _time(one), _time(every),
        Cell(join(_meter(share), f" {share:.1%}"), share) if known else None,
        _rate(task.flops, one), _rate(task.bytes, one), Cell(estimate, task.share),
        f"{', '.join(task.nodes[:_NODES])}{more}",
    ))  # fmt: skip


def _time(value: float | None) -> Cell:
    return Cell("" if value is None else seconds(value), value)


def _rate(amount: float, time: float | None) -> Cell:
    if not amount or not time:
        return Cell("")
    rate = amount / time / 1e9
    return Cell(f"{rate:.3g}", rate)


def _meter(share: float) -> Markup:
    bar = element("rect", width=f"{100 * share:.2f}", height=10)
    return element("svg", bar, class_="meter", viewBox="0 0 100 10", preserveAspectRatio="none",
                   aria_hidden="true", width=48, height=10)  # fmt: skip


def _about(task: TaskReport) -> Markup:
    """Return all that is known of a kernel."""
    values: dict[str, Content] = {
        "why this schedule": task.reason,
        "not tuned": task.dropped,
        "trials": f"{task.trials}, {task.failed} failed" if task.trials else None,
        "operations of a call": count(task.flops) if task.flops else None,
        "bytes of a call": count(task.bytes) if task.bytes else None,
        "workload": task.workload,
        "nodes": ", ".join(task.nodes),
    }
    return lines(
        facts(values),
        *_listed("Operators", task.computes),
        *_listed("Schedule", task.schedule),
        *_listed("Problems", task.problems),
    )


def _listed(title: str, rows: tuple[str, ...]) -> Iterator[Markup]:
    if rows:
        yield element("h4", title)
        yield block(rows)


def _engines(tasks: Sequence[TaskReport], shares: Sequence[float]) -> Markup:
    """Return which engines and implementations hold how much of the time."""
    known = sum(shares) > 0
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for task, share in zip(tasks, shares, strict=True):
        groups[task.engine, task.implementation].append(share)
    ordered = sorted(groups.items(), key=lambda item: (-sum(item[1]), item[0]))
    rows = (
        TableRow((engine, implementation, Cell(len(some), len(some)),
             Cell(join(_meter(sum(some)), f" {sum(some):.1%}"), sum(some)) if known else None))
        for (engine, implementation), some in ordered
    )  # fmt: skip
    title = f"Schedules of {plural(len(tasks), 'kernel')}"
    return table(title, ("engine", "implementation", ">kernels", ">share of time"), rows)
