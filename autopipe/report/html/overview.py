"""How a build ended, and the figures that are asked for first."""

from collections.abc import Iterator
from typing import Final

from autopipe.artifacts.benchmark import BenchmarkReport, CheckedGate, Outcome
from autopipe.report.document import Origin, RunReport
from autopipe.report.html.elements import Content, Markup, block, element, lines
from autopipe.report.html.tables import facts
from autopipe.report.html.tasks import list_kernels
from autopipe.report.html.view import BuildView
from autopipe.report.units import plural, seconds
from autopipe.tasks.shares import floored

_SOURCES: Final[dict[Origin, str]] = {
    "build": "From the last build in the store; it says nothing of latency.",
    "lock": "From a lock: what the build rests on, with the times that tuning measured.",
    "package": "From a package: what is in it, as its manifest says.",
}


def write_overview(view: BuildView) -> Markup:
    """Return the reason of a failure first, then the main figures."""
    report = view.report
    return lines(
        _failure(report),
        element("p", _SOURCES.get(report.origin)) if report.origin != "run" else None,
        facts(dict(_figures(report))),
    )


def _failure(report: RunReport) -> Markup:
    """Return why the run did not finish: its error, and the stage that it ended in."""
    if report.error is None:
        return Markup()
    at = next((one.stage for one in report.stages if one.state in {"failed", "interrupted"}), None)
    where = f" in stage {at}" if at else ""
    return element(
        "div", element("p", f"{report.outcome}{where}, exit code {report.exit_code}"),
        block(report.error.split("\n")), class_="failure", role="note",
    )  # fmt: skip


def _figures(report: RunReport) -> Iterator[tuple[str, Content]]:
    yield from _latency(report.benchmark)
    if report.verification is not None:
        yield "Accuracy", _accuracy(report)
    elif report.verified:
        yield "Accuracy", report.verified
    if report.tasks:
        yield "Kernels", _kernels(report)
    if report.searched_share is not None:
        words = ("searched", "measured", "steady")
        parts = (report.searched_share, report.measured_share or 0, report.steady_share or 0)
        shares = zip(parts, words, strict=True)
        yield "Of the time", ", ".join(f"{floored(part)} {word}" for part, word in shares)
    if report.gates:
        yield "Gates", _gates(report.gates)
    if report.warnings:
        yield "Warnings", len(report.warnings)
    if report.package is not None:
        yield "Package", f"{report.package.path}, {report.package.size / 2**20:.1f} MiB"
    if report.origin == "run":
        yield "Run took", seconds(report.seconds)


def _latency(benchmark: BenchmarkReport | None) -> Iterator[tuple[str, Content]]:
    if benchmark is None:
        return
    ours, rival = benchmark.ours.latency, benchmark.counted_rival
    yield "Latency", f"{seconds(ours.median)} ({seconds(ours.low)} to {seconds(ours.high)})"
    if rival is not None:
        found = benchmark.comparisons[rival]
        yield f"Relative to {rival}", f"{found.ratio:.2f}, {found.verdict}"


def _accuracy(report: RunReport) -> str:
    checked = report.verification
    assert checked is not None  # noqa: S101 -- the caller has looked
    wrong = sum(case.outcome == "failed" for case in checked.binding)
    if wrong:
        return f"{plural(wrong, 'case')} of {len(checked.binding)} failed"
    return checked.summary() if any(case.outputs for case in checked.cases) else "nothing compared"


def _kernels(report: RunReport) -> str:
    kernels = list_kernels(report)
    calls = sum(report.tasks[at].calls for at in kernels)
    return f"{len(kernels)}, in {plural(calls, 'call')} a run"


def _gates(gates: tuple[CheckedGate, ...]) -> str:
    counts = {outcome: sum(gate.outcome is outcome for gate in gates) for outcome in Outcome}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
