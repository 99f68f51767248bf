"""Format a run as JUnit XML: stages, verified cases and gates as test cases."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from autopipe.artifacts.benchmark import Outcome
from autopipe.artifacts.verification import CaseOutcome, CheckedCase
from autopipe.report.document import RunReport, StageReport

_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 forbids, even escaped."""

_NO: Final = 1
"""Exit code of a failed check."""


@dataclass(frozen=True, slots=True)
class _TestCase:
    name: str
    result: Literal["passed", "failure", "error", "skipped"] = "passed"
    message: str = ""
    """The reason of a failure, or other output."""
    seconds: float | None = None
    """Its duration; None where only the whole suite was timed."""


def format_junit(*reports: RunReport) -> str:
    """Format the reports of all builds as XML, well-formed for any text in them."""
    names = ", ".join(report.pipeline or "pipeline" for report in reports)
    seconds = sum(report.seconds for report in reports)
    root = Element("testsuites", name=_remove_forbidden(names), time=f"{seconds:.3f}")
    _set_counts(root, [case for report in reports for case in _add_suites(root, report)])
    indent(root)
    body = tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _add_suites(root: Element, report: RunReport) -> list[_TestCase]:
    """Add the suites of a build; return all their cases."""
    name = report.pipeline or "pipeline"
    every = []
    times = {stage.stage: stage.seconds for stage in report.stages}
    for suite, cases, seconds in (
        ("stages", _list_stage_cases(report), sum(seconds or 0.0 for seconds in times.values())),
        (
            "verify",
            _list_verified_cases(report, timed=times.get("verify") is not None),
            times.get("verify"),
        ),
        ("gates", _list_gate_cases(report), times.get("benchmark")),
    ):
        if cases:
            every += cases
            _add_suite(root, f"{name}.{suite}", cases, seconds)
    return every


def _list_stage_cases(report: RunReport) -> list[_TestCase]:
    cases = [_build_stage_case(stage, report.exit_code) for stage in report.stages]
    if report.error is not None and all(case.result in {"passed", "skipped"} for case in cases):
        cases.append(_TestCase("run", _classify_fault(report.exit_code), report.error))
    return cases


def _build_stage_case(stage: StageReport, exit_code: int) -> _TestCase:
    if stage.state in {"failed", "interrupted"}:
        error = stage.error or stage.state
        return _TestCase(stage.stage, _classify_fault(exit_code), error, stage.seconds or 0.0)
    if stage.state in {"skipped", "not_run"}:
        return _TestCase(stage.stage, "skipped", stage.summary or "not run")
    message = stage.summary or stage.state
    return _TestCase(stage.stage, message=message, seconds=stage.seconds or 0.0)


def _classify_fault(exit_code: int) -> Literal["failure", "error"]:
    return "failure" if exit_code == _NO else "error"


def _list_verified_cases(report: RunReport, *, timed: bool) -> list[_TestCase]:
    """List the verified cases, with times if this run measured them."""
    cases = (
        [] if report.verification is None else map(_build_verified_case, report.verification.cases)
    )
    return [case if timed else replace(case, seconds=None) for case in cases]


def _build_verified_case(case: CheckedCase) -> _TestCase:
    name = case.label if case.sizes else case.name
    match case.outcome:
        case CaseOutcome.SKIPPED:
            return _TestCase(name, "skipped", "the reference is not finite on it", case.seconds)
        case CaseOutcome.FAILED:
            wrong = (
                f"{output.output}: {output.failure}" for output in case.outputs if output.failure
            )
            return _TestCase(name, "failure", "; ".join(wrong), case.seconds)
        case CaseOutcome.PASSED:
            return _TestCase(name, seconds=case.seconds)


def _list_gate_cases(report: RunReport) -> list[_TestCase]:
    results: dict[Outcome, Literal["passed", "failure", "skipped"]] = {
        Outcome.PASSED: "passed",
        Outcome.FAILED: "failure",
        Outcome.INCONCLUSIVE: "skipped",
    }
    return [
        _TestCase(
            gate.gate,
            results[gate.outcome],
            f"inconclusive: {gate.found}" if gate.outcome is Outcome.INCONCLUSIVE else gate.found,
        )
        for gate in report.gates
    ]


def _add_suite(root: Element, name: str, cases: list[_TestCase], seconds: float | None) -> None:
    suite = SubElement(root, "testsuite", name=_remove_forbidden(name))
    if seconds is not None:
        suite.set("time", f"{seconds:.3f}")
    _set_counts(suite, cases)
    for case in cases:
        element = SubElement(
            suite, "testcase", name=_remove_forbidden(case.name), classname=_remove_forbidden(name)
        )
        if case.seconds is not None:
            element.set("time", f"{case.seconds:.3f}")
        if case.result != "passed":
            inner = SubElement(
                element, case.result, message=_remove_forbidden(case.message.split("\n")[0])
            )
            inner.text = _remove_forbidden(case.message)
        elif case.message:
            SubElement(element, "system-out").text = _remove_forbidden(case.message)


def _set_counts(element: Element, cases: Iterable[_TestCase]) -> None:
    results = [case.result for case in cases]
    element.set("tests", str(len(results)))
    element.set("failures", str(results.count("failure")))
    element.set("errors", str(results.count("error")))
    element.set("skipped", str(results.count("skipped")))


def _remove_forbidden(text: str) -> str:
    """Remove characters that XML forbids; the writer escapes the rest."""
    return _FORBIDDEN.sub("", text)
