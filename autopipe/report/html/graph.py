"""The compiled model as a graph: kernels in layers, coloured by their share of the time."""

from collections.abc import Iterator, Sequence
from typing import Final

from autopipe.artifacts.model_nodes import format_nodes, name_kernel
from autopipe.report.document import GraphCall, KernelGraph, RunReport
from autopipe.report.html.elements import Markup, join_lines, make_element
from autopipe.report.html.layers import Layout, lay_out
from autopipe.report.html.tables import make_details
from autopipe.report.html.tasks import time_shares
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_plural

_WIDTH: Final = 172
_HEIGHT: Final = 34
_GAP: Final = 22
_LETTERS: Final = 24
"""Characters of a name that fit a box."""
_STEPS: Final = (0.05, 0.2, 0.4, 0.7)
"""Parts of the largest share from which a box has the next colour."""

_LEGEND: Final = (
    "Each box is a kernel call, below all that it reads; the stronger its colour, the larger"
    " its share among the kernels. Dashed boxes were added by the compiler. A box leads to its"
    " kernel's row."
)


def write_graph(view: BuildView) -> Markup:
    """Draw the graph of each function; that of `main` in the first library is expanded."""
    graphs = [
        _build_function_graph(view, graph, first=at == 0)
        for at, graph in enumerate(view.report.graphs)
    ]
    if not graphs:
        return Markup()
    return join_lines(make_element("p", _LEGEND), *graphs)


def _build_function_graph(view: BuildView, graph: KernelGraph, *, first: bool) -> Markup:
    title = f"{graph.function} in {graph.library}: {format_plural(len(graph.calls), 'kernel call')}"
    layout = lay_out([call.reads for call in graph.calls], width=_WIDTH, height=_HEIGHT, gap=_GAP)
    if layout is None:
        return make_element("p", f"{title}. It is too large to be drawn.")
    box = make_element("div", _draw_graph(view, graph, layout), class_="canvas", role="region",
                  aria_label=f"Graph of {title}", tabindex=0)  # fmt: skip
    return make_details(title, box, class_="graph", open="open" if first else None)


def _draw_graph(view: BuildView, graph: KernelGraph, layout: Layout) -> Markup:
    width, height = round(layout.width) + 2, round(layout.height)
    shares = _call_shares(view.report, graph)
    largest = max(shares, default=0.0)
    boxes = [
        _draw_box(view, call, centre, share, largest)
        for call, centre, share in zip(graph.calls, layout.centres, shares, strict=True)
    ]
    edges = make_element(
        "path", d=Markup("".join(map(_format_curve, layout.edges))), class_="edges"
    )
    return make_element("svg", join_lines(edges, *boxes), width=width, height=height,
                   viewBox=f"-1 0 {width} {height}")  # fmt: skip


def _call_shares(report: RunReport, graph: KernelGraph) -> list[float]:
    """Compute each call's share of the time; 0 if its task is unknown."""
    of_tasks = time_shares(report)
    calls = [max(task.calls, 1) for task in report.tasks]
    return [
        of_tasks[call.task] / calls[call.task]
        if call.task is not None and 0 <= call.task < len(of_tasks)
        else 0.0
        for call in graph.calls
    ]


def _format_curve(points: Sequence[tuple[float, float]]) -> str:
    """Format an edge as an SVG path, from below its source to above its target."""
    return "".join(_list_curve_parts(points))


def _list_curve_parts(points: Sequence[tuple[float, float]]) -> Iterator[str]:
    x, y = points[0][0], points[0][1] + _HEIGHT / 2
    yield f"M{x:.0f} {y:.0f}"
    for to_x, centre in points[1:]:
        to_y = centre - _HEIGHT / 2
        middle = (y + to_y) / 2
        yield f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}"
        x, y = to_x, centre + _HEIGHT / 2
        if (to_x, centre) != points[-1]:
            yield f"V{y:.0f}"


def _draw_box(
    view: BuildView, call: GraphCall, centre: tuple[float, float], share: float, largest: float
) -> Markup:
    x, y = centre
    part = share / largest if largest else 0.0
    heat = f"heat{sum(part >= step for step in _STEPS)}{' added' if call.added else ''}"
    name = name_kernel(call.kernel)
    nodes = format_nodes(call.nodes)
    tooltip = f"{name}: {'added for ' if call.added else ''}{nodes}"
    shape = make_element("rect", x=f"{x - _WIDTH / 2:.0f}", y=f"{y - _HEIGHT / 2:.0f}",
                         width=_WIDTH, height=_HEIGHT, rx=4)  # fmt: skip
    second = f"{share:.1%}  {nodes}" if share else nodes
    texts = (
        make_element("text", _shorten_text(name), x=f"{x:.0f}", y=f"{y - 3:.0f}"),
        make_element(
            "text", _shorten_text(second), x=f"{x:.0f}", y=f"{y + 11:.0f}", class_="nodes"
        ),
    )
    inner = (make_element("title", tooltip), shape, *texts)
    if call.task is None:
        return make_element("g", *inner, class_=heat)
    return make_element("a", *inner, class_=heat, href=f"#{view.anchor(f'kernel-{call.task}')}")


def _shorten_text(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
