"""The section on latency beside reference runtimes: bars with whiskers, and tables."""

from collections.abc import Iterator, Sequence

from autopipe.artifacts.benchmark import BenchmarkReport, Latency, LatencyComparison, TimedContender
from autopipe.config.dimension import format_sizes
from autopipe.report.html.elements import Markup, join_lines, make_element
from autopipe.report.html.tables import (
    Cell,
    TableRow,
    make_ratio_cell,
    make_table,
    make_time_cell,
    make_verdict_cell,
)
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_plural, format_range, format_spread


def write_latency(view: BuildView) -> Markup:
    """Write the results of this run's benchmark."""
    benchmark = view.report.benchmark
    if benchmark is None:
        is_skipped = any(
            stage.stage == "benchmark" and stage.state == "skipped" for stage in view.report.stages
        )
        told_why = "This run measured nothing: times are never taken from the store."
        return make_element("p", told_why) if is_skipped else Markup()
    return join_lines(
        _describe_conditions(benchmark),
        _draw_bars((benchmark.ours, *benchmark.competitors)),
        _build_contender_table(benchmark),
        _build_size_table(benchmark),
        *(
            make_element("p", f"{name} was not timed: {why}")
            for name, why in sorted(benchmark.skipped.items())
        ),
    )


def _describe_conditions(benchmark: BenchmarkReport) -> Markup:
    machine = benchmark.machine
    disturbance = f" Disturbed: {benchmark.disturbed}." if benchmark.disturbed else ""
    sizes = f", {format_sizes(benchmark.at_sizes[0].sizes)}" if benchmark.at_sizes else ""
    return make_element(
        "p",
        f"On {machine.gpu or machine.cpu}, {format_plural(benchmark.threads, 'thread')}{sizes}. "
        "Bars are "
        f"medians, whiskers quartiles of all runs.{disturbance}",
    )


def _draw_bars(contenders: Sequence[TimedContender]) -> Markup:
    longest = max(one.latency.high for one in contenders) or 1.0
    return make_element(
        "div", join_lines(*(_draw_bar(one, longest) for one in contenders)), class_="bars"
    )


def _draw_bar(contender: TimedContender, longest: float) -> Markup:
    """Draw the name, the times and the bar of a runtime."""
    latency = contender.latency
    low, median, high = (
        f"{98 * value / longest:.2f}" for value in (latency.low, latency.median, latency.high)
    )
    ours = "ours" if contender.name == "autopipe" else "theirs"
    whisker = make_element("path", d=f"M{low} 10H{high}M{low} 5V15M{high} 5V15", class_="whisker",
                      vector_effect="non-scaling-stroke")  # fmt: skip
    bar = make_element("rect", x=0, y=2, width=median, height=16, class_=ours)
    drawing = make_element("svg", bar, whisker, viewBox="0 0 100 20", preserveAspectRatio="none",
                      aria_hidden="true", height=20)  # fmt: skip
    name = make_element("span", f"{contender.name} {contender.version}")
    times = format_spread(latency.median, latency.low, latency.high)
    return make_element("div", name, " ", make_element("b", times), drawing)


def _build_contender_table(benchmark: BenchmarkReport) -> Markup:
    header = ("contender", ">median", ">quartiles", ">autopipe relative to it", "verdict")
    rows = (
        TableRow((f"{one.name} {one.version}", *_build_time_cells(one.latency),
                  *_build_comparison_cells(benchmark.comparisons.get(one.name))))
        for one in (benchmark.ours, *benchmark.competitors)
    )  # fmt: skip
    return make_table("Latency of one run", header, rows)


def _build_time_cells(latency: Latency) -> tuple[Cell, Cell]:
    spread = Cell(format_range(latency.low, latency.high), latency.low)
    return make_time_cell(latency.median), spread


def _build_comparison_cells(comparison: LatencyComparison | None) -> tuple[Cell, Cell]:
    if comparison is None:
        return Cell(None), Cell(None)
    return make_ratio_cell(comparison.ratio), make_verdict_cell(comparison.verdict)


def _build_size_table(benchmark: BenchmarkReport) -> Markup:
    """Write times at each size, for a model with dynamic dimensions."""
    names = [competitor.name for competitor in benchmark.competitors]
    columns = [column for name in names for column in (f">{name}", ">ratio", "verdict")]
    header = ("sizes", "library", ">autopipe", *columns)
    return make_table("Latency by size", header, _list_size_rows(benchmark, names))


def _list_size_rows(benchmark: BenchmarkReport, names: Sequence[str]) -> Iterator[TableRow]:
    for at in benchmark.at_sizes:
        cells = [
            Cell(format_sizes(at.sizes)),
            Cell("specialized" if at.likely else "generic"),
            make_time_cell(at.ours.median),
        ]
        for name in names:
            theirs = at.competitors.get(name)
            cells.append(make_time_cell(theirs.median if theirs else None))
            cells += _build_comparison_cells(at.comparisons[name] if theirs else None)
        yield TableRow(cells)
