"""The sections on kernels of a build: schedule, time and computation of each, and transposes."""

import zlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from autopipe.report.document import RunReport, TaskReport
from autopipe.report.escape import escape_text
from autopipe.report.html.elements import (
    Content,
    Markup,
    join_lines,
    join_markup,
    make_element,
    make_text_block,
)
from autopipe.report.html.tables import (
    Cell,
    TableRow,
    make_details,
    make_fact_list,
    make_table,
    make_time_cell,
)
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_count, format_plural

_NODES: Final = 4
"""Largest number of nodes in a row; its details list all."""
_LONGEST: Final = 1 << 20
"""Largest number of characters of a compressed text; the rest is omitted."""

_TRANSPOSES: Final = frozenset({"permute_dims", "layout_transform"})

_FREE: Final = frozenset({"reshape", "squeeze", "expand_dims", "flatten"})
"""Operators that keep the order of elements."""


def write_tasks(view: BuildView) -> Markup:
    """Write the kernels, the slowest first."""
    report = view.report
    if not report.tasks:
        return Markup()
    times, shares = sum_times(report), time_shares(report)
    kernels = list_kernels(report)
    order = sorted(kernels, key=lambda at: (-shares[at], at))
    column = ">share" if any(time is not None for time in times) else ">estimated share"
    header = ("kernel", ">calls", "engine", "implementation", ">one call", ">all calls", column,
              ">GFLOPS", ">GB/s", ">estimate", "nodes")  # fmt: skip
    rows = (_build_row(view, at, times[at], shares[at]) for at in order)
    return join_lines(
        make_element("p", text) if (text := _explain_times(report, times)) else None,
        make_table("Kernels", header, rows),
        _build_engine_table(
            [report.tasks[at] for at in kernels], [shares[at] for at in kernels], column
        ),
    )


def list_kernels(report: RunReport) -> list[int]:
    """Return the positions of the tasks that the build calls as kernels.

    TVM turns a task that only reshapes into a view. If the task of a call is unknown, all count.
    """
    called_tasks = {call.task for graph in report.graphs for call in graph.calls}
    is_complete = bool(called_tasks) and None not in called_tasks
    return [at for at in range(len(report.tasks)) if at in called_tasks or not is_complete]


def time_shares(report: RunReport) -> list[float]:
    """Compute each task's share of the total time; tasks without a time use their estimate."""
    tasks, times = report.tasks, sum_times(report)
    timed_total = sum(time for time in times if time is not None)
    timed_share = sum(
        task.share or 0.0 for task, time in zip(tasks, times, strict=True) if time is not None
    )
    scale = timed_total / timed_share if timed_total and timed_share else 1.0
    weights = [
        (task.share or 0.0) * scale if time is None else time
        for task, time in zip(tasks, times, strict=True)
    ]
    total = sum(weights)
    return [weight / total if total else 0.0 for weight in weights]


def sum_times(report: RunReport) -> list[float | None]:
    """Return the seconds of all calls of each task in one run; None for unmeasured tasks.

    They are those of the profiled model if there is a profile, otherwise those of tuning.
    """
    profiled_seconds: dict[int | None, float] = defaultdict(float)
    for kernel in report.profile.kernels if report.profile else ():
        profiled_seconds[kernel.task] += kernel.seconds
    return [
        profiled_seconds.get(at, compute_tuned_time(task)) for at, task in enumerate(report.tasks)
    ]


def compute_tuned_time(task: TaskReport) -> float | None:
    """Return the tuned seconds of all calls, preferably those measured inside the model."""
    seconds = task.in_model or task.seconds
    return None if seconds is None else seconds * task.calls


def _explain_times(report: RunReport, times: Sequence[float | None]) -> str | None:
    tasks = report.tasks
    untimed_tasks = [task for task, time in zip(tasks, times, strict=True) if time is None]
    estimated_count = sum(task.share is not None for task in untimed_tasks)
    if len(untimed_tasks) == len(tasks):
        guess = "Nothing measured them: shares are estimated from operations and bytes"
        return f"{guess}; `autopipe report --profile` measures them." if estimated_count else None
    parts = [f"Times are {'of the profiled run' if report.profile else 'as tuning measured them'}"]
    if inside := 0 if report.profile else sum(task.in_model is not None for task in tasks):
        parts.append(f"{inside} of {len(tasks)} inside the whole model")
    if estimated_count:
        parts.append(f"{estimated_count} of {len(tasks)} were not timed and weigh as estimated")
    unknown_count = len(untimed_tasks) - estimated_count
    parts += [f"nothing is known of {unknown_count} of {len(tasks)}"] if unknown_count else []
    return "; ".join(parts) + ". GB/s counts each argument once."


def _build_row(view: BuildView, at: int, every: float | None, share: float) -> TableRow:
    task = view.report.tasks[at]
    call_time = None if every is None else every / max(task.calls, 1)
    estimate = None if task.share is None or every is None else f"{task.share:.1%}"
    has_share = every is not None or task.share is not None
    remaining_nodes = f" and {len(task.nodes) - _NODES} more" if len(task.nodes) > _NODES else ""
    return TableRow((
        Cell(make_details(task.name, _build_details(task), id=view.anchor(f"kernel-{at}"))),
        Cell(task.calls, task.calls), task.engine, task.implementation,
        make_time_cell(call_time), make_time_cell(every),
        Cell(join_markup(_draw_meter(share), f" {share:.1%}"), share) if has_share else None,
        _build_rate_cell(task.flops, call_time), _build_rate_cell(task.bytes, call_time),
        Cell(estimate, task.share), f"{', '.join(task.nodes[:_NODES])}{remaining_nodes}",
    ))  # fmt: skip


def _build_rate_cell(amount: float, time: float | None) -> Cell:
    if not amount or not time:
        return Cell("")
    rate = amount / time / 1e9
    return Cell(f"{rate:.3g}", rate)


def _draw_meter(share: float) -> Markup:
    bar = make_element("rect", width=f"{100 * share:.2f}", height=10)
    return make_element("svg", bar, class_="meter", viewBox="0 0 100 10",
                        preserveAspectRatio="none", aria_hidden="true", width=48,
                        height=10)  # fmt: skip


def _build_details(task: TaskReport) -> Markup:
    """Write the details of a kernel."""
    values: dict[str, Content] = {
        "why this schedule": task.reason,
        "not tuned": task.dropped,
        "trials": f"{task.trials}, {task.failed} failed" if task.trials else None,
        "operations of a call": format_count(task.flops) if task.flops else None,
        "bytes of a call": format_count(task.bytes) if task.bytes else None,
        "workload": task.workload,
        "nodes": ", ".join(task.nodes),
    }
    return join_lines(
        make_fact_list(values),
        *_list_titled_block("Operators", task.computes),
        *_list_titled_block("Schedule", task.schedule),
        *_list_titled_block("Problems", task.problems),
        _write_compressed("TIR", task.tir) if task.tir else None,
    )


def _write_compressed(title: str, text: str) -> Markup:
    """Write a collapsed text that the page's script expands; without it a note asks for that."""
    harmless = "\n".join(escape_text(line, _LONGEST) for line in text[:_LONGEST].split("\n"))
    data = b64encode(zlib.compress(harmless.encode(), 9)).decode()
    needs = make_element("p", "It is compressed; JavaScript shows it.")
    return make_details(title, needs, class_="compressed", data_text=Markup(data))


def _list_titled_block(title: str, rows: tuple[str, ...]) -> Iterator[Markup]:
    if rows:
        yield make_element("h4", title)
        yield make_text_block(rows)


def _build_engine_table(
    tasks: Sequence[TaskReport], shares: Sequence[float], column: str
) -> Markup:
    """Write the share of the time by engine and implementation."""
    has_shares = sum(shares) > 0
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for task, share in zip(tasks, shares, strict=True):
        groups[task.engine, task.implementation].append(share)
    sorted_groups = sorted(groups.items(), key=lambda item: (-sum(item[1]), item[0]))
    rows = (
        TableRow((engine, implementation, Cell(len(some), len(some)),
             Cell(join_markup(_draw_meter(sum(some)), f" {sum(some):.1%}"), sum(some))
             if has_shares else None))
        for (engine, implementation), some in sorted_groups
    )  # fmt: skip
    title = f"Schedules of {format_plural(len(tasks), 'kernel')}"
    return make_table(title, ("engine", "implementation", ">kernels", column), rows)


def write_moves(view: BuildView) -> Markup:
    """Write the transposes that remain in the build as separate kernels."""
    report = view.report
    added_tasks = {call.task for graph in report.graphs for call in graph.calls if call.added}
    times, shares = sum_times(report), time_shares(report)
    rows = [
        _build_transpose_row(task, time, share, added=at in added_tasks)
        for at, (task, time, share) in enumerate(zip(report.tasks, times, shares, strict=True))
        if _is_transpose(task)
    ]
    header = ("kernel", ">calls", ">all calls", ">share", "why", "nodes")
    return make_table("Kernels that only transpose", header, rows)


def _is_transpose(task: TaskReport) -> bool:
    ops = set(task.ops)
    return bool(ops & _TRANSPOSES) and ops <= _TRANSPOSES | _FREE


def _build_transpose_row(
    task: TaskReport, every: float | None, share: float, *, added: bool
) -> TableRow:
    return TableRow((
        task.name, Cell(task.calls, task.calls), make_time_cell(every), Cell(f"{share:.1%}", share),
        "added where a layout changes" if added else "with nodes of the model",
        ", ".join(task.nodes),
    ))  # fmt: skip
