"""Latency beside reference runtimes: bars with whiskers, and the same as tables."""

from collections.abc import Iterator, Sequence

from autopipe.artifacts.benchmark import BenchmarkReport, Latency, TimedContender
from autopipe.config.dimension import told
from autopipe.report.html.elements import Markup, element, lines
from autopipe.report.html.tables import Cell, TableRow, table
from autopipe.report.html.view import BuildView
from autopipe.report.units import plural, seconds


def write_latency(view: BuildView) -> Markup:
    """Return what the benchmark of this run measured."""
    benchmark = view.report.benchmark
    if benchmark is None:
        skipped = any(
            stage.stage == "benchmark" and stage.state == "skipped" for stage in view.report.stages
        )
        told_why = "This run measured nothing: times are never taken from the store."
        return element("p", told_why) if skipped else Markup()
    return lines(
        _conditions(benchmark),
        _bars((benchmark.ours, *benchmark.rivals)),
        _contenders(benchmark),
        _sizes(benchmark),
        *(
            element("p", f"{name} was not timed: {why}")
            for name, why in sorted(benchmark.skipped.items())
        ),
    )


def _conditions(benchmark: BenchmarkReport) -> Markup:
    machine = benchmark.machine
    disturbed = f" Disturbed: {benchmark.disturbed}." if benchmark.disturbed else ""
    sizes = f", {told(benchmark.at_sizes[0].sizes)}" if benchmark.at_sizes else ""
    return element(
        "p",
        f"On {machine.gpu or machine.cpu}, {plural(benchmark.threads, 'thread')}{sizes}. Bars are "
        f"medians, whiskers quartiles of all runs.{disturbed}",
    )


def _bars(contenders: Sequence[TimedContender]) -> Markup:
    longest = max(one.latency.high for one in contenders) or 1.0
    return element("div", lines(*(_bar(one, longest) for one in contenders)), class_="bars")


def _bar(contender: TimedContender, longest: float) -> Markup:
    """Return a contender's name, its times and its bar."""
    latency = contender.latency
    low, median, high = (
        f"{98 * value / longest:.2f}" for value in (latency.low, latency.median, latency.high)
    )
    ours = "ours" if contender.name == "autopipe" else "theirs"
    whisker = element("path", d=f"M{low} 10H{high}M{low} 5V15M{high} 5V15", class_="whisker",
                      vector_effect="non-scaling-stroke")  # fmt: skip
    bar = element("rect", x=0, y=2, width=median, height=16, class_=ours)
    drawing = element("svg", bar, whisker, viewBox="0 0 100 20", preserveAspectRatio="none",
                      aria_hidden="true", height=20)  # fmt: skip
    name = element("span", f"{contender.name} {contender.version}")
    return element("div", name, " ", element("b", _interval(latency)), drawing)


def _interval(latency: Latency) -> str:
    spread = f"{seconds(latency.low)} to {seconds(latency.high)}"
    return f"{seconds(latency.median)} ({spread})"


def _contenders(benchmark: BenchmarkReport) -> Markup:
    header = ("contender", ">median", ">quartiles", ">autopipe relative to it", "verdict")
    rows = [TableRow((f"{benchmark.ours.name} {benchmark.ours.version}",
                 *_times(benchmark.ours.latency), "", ""))]  # fmt: skip
    for rival in benchmark.rivals:
        found = benchmark.comparisons[rival.name]
        ratio, verdict = Cell(f"{found.ratio:.2f}", found.ratio), _verdict(found.verdict)
        rows.append(
            TableRow((f"{rival.name} {rival.version}", *_times(rival.latency), ratio, verdict))
        )
    return table("Latency of one run", header, rows)


def _times(latency: Latency) -> tuple[Cell, Cell]:
    spread = f"{seconds(latency.low)} to {seconds(latency.high)}"
    return Cell(seconds(latency.median), latency.median), Cell(spread, latency.low)


def _verdict(verdict: str) -> Cell:
    return Cell(verdict, mark={"faster": "good", "slower": "bad"}.get(verdict))


def _sizes(benchmark: BenchmarkReport) -> Markup:
    """Return times at each size, of a model with dynamic dimensions."""
    if not benchmark.at_sizes:
        return Markup()
    names = [rival.name for rival in benchmark.rivals]
    columns = [column for name in names for column in (f">{name}", ">ratio", "verdict")]
    header = ("sizes", "library", ">autopipe", *columns)
    return table("Latency by size", header, _size_rows(benchmark, names))


def _size_rows(benchmark: BenchmarkReport, names: Sequence[str]) -> Iterator[TableRow]:
    for at in benchmark.at_sizes:
        cells = [
            Cell(told(at.sizes)),
            Cell("specialized" if at.likely else "generic"),
            Cell(seconds(at.ours.median), at.ours.median),
        ]
        for name in names:
            if name not in at.rivals:
                cells += [Cell(""), Cell(""), Cell("")]
                continue
            theirs, found = at.rivals[name].median, at.comparisons[name]
            cells += [Cell(seconds(theirs), theirs), Cell(f"{found.ratio:.2f}", found.ratio)]
            cells.append(_verdict(found.verdict))
        yield TableRow(cells)
