"""The section on latency beside reference runtimes: bars with whiskers, and tables."""

from collections.abc import Iterator, Sequence

from autopipe.artifacts.benchmark import BenchmarkReport, Latency, TimedContender
from autopipe.config.dimension import format_sizes
from autopipe.report.html.elements import Markup, join_lines, make_element
from autopipe.report.html.tables import Cell, TableRow, make_table
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_plural, format_seconds


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
    return make_element("div", name, " ", make_element("b", _format_interval(latency)), drawing)


def _format_interval(latency: Latency) -> str:
    spread = f"{format_seconds(latency.low)} to {format_seconds(latency.high)}"
    return f"{format_seconds(latency.median)} ({spread})"


def _build_contender_table(benchmark: BenchmarkReport) -> Markup:
    header = ("contender", ">median", ">quartiles", ">autopipe relative to it", "verdict")
    rows = [TableRow((f"{benchmark.ours.name} {benchmark.ours.version}",
                 *_build_time_cells(benchmark.ours.latency), "", ""))]  # fmt: skip
    for competitor in benchmark.competitors:
        comparison = benchmark.comparisons[competitor.name]
        ratio, verdict = (
            Cell(f"{comparison.ratio:.2f}", comparison.ratio),
            _build_verdict_cell(comparison.verdict),
        )
        rows.append(
            TableRow(
                (
                    f"{competitor.name} {competitor.version}",
                    *_build_time_cells(competitor.latency),
                    ratio,
                    verdict,
                )
            )
        )
    return make_table("Latency of one run", header, rows)


def _build_time_cells(latency: Latency) -> tuple[Cell, Cell]:
    spread = f"{format_seconds(latency.low)} to {format_seconds(latency.high)}"
    return Cell(format_seconds(latency.median), latency.median), Cell(spread, latency.low)


def _build_verdict_cell(verdict: str) -> Cell:
    return Cell(verdict, mark={"faster": "good", "slower": "bad"}.get(verdict))


def _build_size_table(benchmark: BenchmarkReport) -> Markup:
    """Write times at each size, for a model with dynamic dimensions."""
    if not benchmark.at_sizes:
        return Markup()
    names = [competitor.name for competitor in benchmark.competitors]
    columns = [column for name in names for column in (f">{name}", ">ratio", "verdict")]
    header = ("sizes", "library", ">autopipe", *columns)
    return make_table("Latency by size", header, _list_size_rows(benchmark, names))


def _list_size_rows(benchmark: BenchmarkReport, names: Sequence[str]) -> Iterator[TableRow]:
    for at in benchmark.at_sizes:
        cells = [
            Cell(format_sizes(at.sizes)),
            Cell("specialized" if at.likely else "generic"),
            Cell(format_seconds(at.ours.median), at.ours.median),
        ]
        for name in names:
            if name not in at.competitors:
                cells += [Cell(""), Cell(""), Cell("")]
                continue
            theirs, comparison = at.competitors[name].median, at.comparisons[name]
            cells += [
                Cell(format_seconds(theirs), theirs),
                Cell(f"{comparison.ratio:.2f}", comparison.ratio),
            ]
            cells.append(_build_verdict_cell(comparison.verdict))
        yield TableRow(cells)
