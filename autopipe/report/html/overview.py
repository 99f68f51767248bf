"""The overview of a build: its outcome and its main figures."""

from collections.abc import Iterator
from typing import Final

from autopipe.artifacts.benchmark import BenchmarkReport, CheckedGate, Outcome
from autopipe.report.document import Origin, RunReport
from autopipe.report.html.elements import Content, Markup, join_lines, make_element, make_text_block
from autopipe.report.html.tables import make_fact_list
from autopipe.report.html.tasks import list_kernels
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_mib, format_plural, format_seconds, format_spread

_SOURCES: Final[dict[Origin, str]] = {
    "build": "From the last build in the store; it says nothing of latency.",
    "lock": "From a lock: what the build rests on, with the times that tuning measured.",
    "package": "From a package: what is in it, as its manifest says.",
}


def write_overview(view: BuildView) -> Markup:
    """Write the reason of a failure first, then the main figures."""
    report = view.report
    return join_lines(
        _build_failure(report),
        make_element("p", _SOURCES.get(report.origin)) if report.origin != "run" else None,
        make_fact_list(dict(_list_figures(report))),
    )


def _build_failure(report: RunReport) -> Markup:
    """Write the error of a failed run, and the stage that it ended in."""
    if report.error is None:
        return Markup()
    at = next((one.stage for one in report.stages if one.state in {"failed", "interrupted"}), None)
    where = f" in stage {at}" if at else ""
    return make_element(
        "div", make_element("p", f"{report.outcome}{where}, exit code {report.exit_code}"),
        make_text_block(report.error.split("\n")), class_="failure", role="note",
    )  # fmt: skip


def _list_figures(report: RunReport) -> Iterator[tuple[str, Content]]:
    yield from _list_latency_figures(report.benchmark)
    if report.verification is not None:
        yield "Accuracy", _summarize_accuracy(report)
    elif report.verified:
        yield "Accuracy", report.verified
    if report.tasks:
        yield "Kernels", _count_kernels(report)
    if report.shares is not None:
        yield "Of the time", report.shares.format_parts()
    if report.gates:
        yield "Gates", _count_gates(report.gates)
    if report.warnings:
        yield "Warnings", len(report.warnings)
    if report.package is not None:
        yield "Package", f"{report.package.path}, {format_mib(report.package.size)}"
    if report.origin == "run":
        yield "Run took", format_seconds(report.seconds)


def _list_latency_figures(benchmark: BenchmarkReport | None) -> Iterator[tuple[str, Content]]:
    if benchmark is None:
        return
    ours, competitor = benchmark.ours.latency, benchmark.counted_competitor
    yield "Latency", format_spread(ours.median, ours.low, ours.high)
    if competitor is not None:
        comparison = benchmark.comparisons[competitor]
        yield f"Relative to {competitor}", f"{comparison.ratio:.2f}, {comparison.verdict}"


def _summarize_accuracy(report: RunReport) -> str:
    verification = report.verification
    assert verification is not None  # noqa: S101 -- the caller has checked
    wrong = sum(case.outcome == "failed" for case in verification.binding)
    if wrong:
        return f"{format_plural(wrong, 'case')} of {len(verification.binding)} failed"
    return (
        verification.summary()
        if any(case.outputs for case in verification.cases)
        else "nothing compared"
    )


def _count_kernels(report: RunReport) -> str:
    kernels = list_kernels(report)
    calls = sum(report.tasks[at].calls for at in kernels)
    return f"{len(kernels)}, in {format_plural(calls, 'call')} a run"


def _count_gates(gates: tuple[CheckedGate, ...]) -> str:
    counts = {outcome: sum(gate.outcome is outcome for gate in gates) for outcome in Outcome}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
