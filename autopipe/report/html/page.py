"""The page: its sections in order, its head, and the policy that forbids it to load anything."""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from autopipe.artifacts.benchmark import BenchmarkReport
from autopipe.report.document import RunReport
from autopipe.report.html.accuracy import write_accuracy
from autopipe.report.html.course import (
    write_failures,
    write_gates,
    write_since,
    write_stages,
    write_warnings,
)
from autopipe.report.html.elements import Content, Markup, join_lines, make_element
from autopipe.report.html.graph import write_graph
from autopipe.report.html.latency import write_latency
from autopipe.report.html.memory import write_memory
from autopipe.report.html.origins import write_origins
from autopipe.report.html.overview import write_overview
from autopipe.report.html.profile import write_profile
from autopipe.report.html.tables import (
    Cell,
    TableRow,
    make_ratio_cell,
    make_table,
    make_time_cell,
)
from autopipe.report.html.tasks import write_moves, write_tasks
from autopipe.report.html.tuning import write_tuning
from autopipe.report.html.view import BuildView

SECTIONS: Final[Mapping[str, Callable[[BuildView], Markup]]] = {
    "Warnings": write_warnings,
    "Latency": write_latency,
    "Gates": write_gates,
    "Kernels": write_tasks,
    "Profile": write_profile,
    "Graph": write_graph,
    "Transposes left": write_moves,
    "Memory": write_memory,
    "Tuning": write_tuning,
    "Left out and failed": write_failures,
    "Accuracy": write_accuracy,
    "Since the last build": write_since,
    "Model and machine": write_origins,
    "Stages": write_stages,
}
"""Sections after the overview of a build, by title; empty ones are omitted."""


def build_page(*reports: RunReport) -> str:
    """Write the reports of all builds as one page; the same reports give the same bytes."""
    several = len(reports) > 1
    views = [
        BuildView(report, f"build{at}-" if several else "") for at, report in enumerate(reports)
    ]
    title = " and ".join(report.pipeline or "pipeline" for report in reports)
    return build_document(
        title, join_lines(_build_overview(views) if several else None, *map(write_build, views))
    )


def write_build(view: BuildView) -> Markup:
    """Write a build: overview, links to its sections, sections."""
    report = view.report
    name = make_element("h1", report.pipeline or "pipeline", " ", _build_badge(report))
    written_sections = [
        (title, section) for title, write in SECTIONS.items() if (section := write(view))
    ]
    links = [
        make_element("a", title, href=f"#{_format_anchor(view, title)}")
        for title, _ in written_sections
    ]
    sections = [
        make_element(
            "section",
            join_lines(make_element("h2", title), section),
            id=_format_anchor(view, title),
        )
        for title, section in written_sections
    ]
    return make_element(
        "article",
        join_lines(
            make_element("header", name, write_overview(view)),
            make_element("nav", join_lines(*links), aria_label="Sections") if links else None,
            *sections,
        ),
        id=view.anchor("build"),
    )


def build_document(title: str, body: Markup) -> str:
    """Build a self-contained document with the style sheet and the script."""
    style, script = read_asset("style.css"), read_asset("script.js")
    policy = (
        f"default-src 'none'; style-src {_digest_for_csp(style)}; script-src "
        f"{_digest_for_csp(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = join_lines(
        make_element("meta", charset="utf-8"),
        make_element("meta", http_equiv="Content-Security-Policy", content=Markup(policy)),
        make_element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        make_element("meta", name="color-scheme", content="light dark"),
        make_element("title", title),
        make_element("style", style),
    )
    page = join_lines(
        Markup("<!DOCTYPE html>"), Markup('<html lang="en">'), make_element("head", head),
        make_element(
            "body", join_lines(make_element("main", body), make_element("script", script))
        ),
        Markup("</html>"),
    )  # fmt: skip
    return f"{page}\n"


@cache
def read_asset(name: str) -> Markup:
    """Read a file beside this one."""
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _digest_for_csp(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _format_anchor(view: BuildView, title: str) -> str:
    return view.anchor(title.lower().replace(" ", "-"))


def _build_badge(report: RunReport) -> Content:
    """Build the badge of the run's outcome, or of the origin for a file of a build."""
    mark = "good" if report.outcome == "finished" else "bad"
    word = report.outcome if report.origin == "run" else report.origin
    return make_element("span", word, class_=f"badge {mark}" if report.origin == "run" else "badge")


def _build_overview(views: list[BuildView]) -> Markup:
    """Build a table with a row for each of several builds."""
    header = ("build", "outcome", ">time", ">latency", ">ratio", "to")
    return make_element("section", make_table("Builds", header, _list_rows(views)))


def _list_rows(views: list[BuildView]) -> Iterator[TableRow]:
    for view in views:
        report = view.report
        name = make_element("a", report.pipeline or "pipeline", href=f"#{view.anchor('build')}")
        time = make_time_cell(report.seconds)
        yield TableRow((name, report.outcome, time, *_build_ratio_cells(report.benchmark)))


def _build_ratio_cells(benchmark: BenchmarkReport | None) -> tuple[Content | Cell, ...]:
    """Build the cells of the latency, the ratio to the decisive reference runtime, and its name."""
    if benchmark is None:
        return None, None, None
    median, competitor = benchmark.ours.latency.median, benchmark.counted_competitor
    ratio = benchmark.comparisons[competitor].ratio if competitor else None
    return make_time_cell(median), make_ratio_cell(ratio), competitor
