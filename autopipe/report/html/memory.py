"""The section on memory over a run: live results of kernel calls."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from autopipe.artifacts.model_nodes import name_kernel
from autopipe.report.document import KernelGraph, TaskReport
from autopipe.report.html.elements import Markup, join_lines, make_chart, make_element
from autopipe.report.html.tables import Cell, TableRow, make_table
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_plural

_LISTED: Final = 10
"""Number of results in the table, largest first."""


@dataclass(frozen=True, slots=True)
class HeldResult:
    """The results of a kernel call, with their live range."""

    kernel: str
    bytes: int
    first: int
    """Position of the call that computes them."""
    last: int
    """Position of the last call that reads them; for results of the model, the last call of all."""


def write_memory(view: BuildView) -> Markup:
    """Write the memory of the first function over its calls, and its largest results."""
    graphs = view.report.graphs[:1]
    results = [one for graph in graphs for one in list_results(graph, view.report.tasks)]
    course = count_held_bytes(results)
    most = max(course, default=0)
    if most <= 0:
        return Markup()
    graph, at = graphs[0], course.index(most)
    text = (
        f"At most {_format_size(most)} of results are held at once, by call {at + 1} of "
        f"{len(course)}, {name_kernel(graph.calls[at].kernel)}, in {graph.library}. A result is "
        "held from the call that makes it to the last one that reads it, those of the model to the "
        "end. Inputs, weights and what a kernel takes for itself come on top."
    )
    unknown_count = sum(not one.bytes for one in results)
    return join_lines(
        make_element("p", text),
        make_element(
            "p",
            f"{format_plural(unknown_count, 'call')} with results of an unknown size "
            "count as none.",
        )
        if unknown_count
        else None,
        _draw_chart(course, most),
        make_table(
            "Largest results", ("kernel", ">MiB", ">from call", ">to call"), _list_rows(results)
        ),
    )


def list_results(graph: KernelGraph, tasks: Sequence[TaskReport]) -> list[HeldResult]:
    """List the results of each call of a graph, in the order of the calls."""
    sizes: dict[int | None, int] = {at: task.result_bytes for at, task in enumerate(tasks)}
    last = {place: len(graph.calls) - 1 for place in range(len(graph.calls))}
    last |= {read: at for at, call in enumerate(graph.calls) for read in call.reads}
    return [
        HeldResult(
            kernel=name_kernel(call.kernel),
            bytes=sizes.get(call.task, 0),
            first=at,
            last=last[at],
        )
        for at, call in enumerate(graph.calls)
    ]


def count_held_bytes(results: Sequence[HeldResult]) -> list[int]:
    """Count the live bytes during each call."""
    changes = [0] * (len(results) + 1)
    for result in results:
        changes[result.first] += result.bytes
        changes[result.last + 1] -= result.bytes
    return list(accumulate(changes[:-1]))


def _draw_chart(course: Sequence[int], most: int) -> Markup:
    step = 100 / len(course)
    heights = (98 - 96 * value / most for value in course)
    path = "".join(f"V{y:.2f}H{step * (at + 1):.2f}" for at, y in enumerate(heights))
    line = make_element("path", d=Markup(f"M0 98{path}"), class_="line0",
                   vector_effect="non-scaling-stroke")  # fmt: skip
    return make_chart(_format_size(most), line, ("0", f"call {len(course)}"), height=160)


def _list_rows(results: Sequence[HeldResult]) -> Iterator[TableRow]:
    for result in sorted(results, key=lambda one: -one.bytes)[:_LISTED]:
        size = Cell(f"{result.bytes / 2**20:.3g}", result.bytes)
        yield TableRow((result.kernel, size, Cell(result.first + 1), Cell(result.last + 1)))


def _format_size(size: int) -> str:
    return f"{size / 2**20:.3g} MiB"
