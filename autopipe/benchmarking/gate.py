"""Decides whether the latencies let a build be published."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autopipe.artifacts.benchmark import (
    BenchmarkReport,
    BenchmarkResult,
    CheckedGate,
    LatencyVerdict,
    Outcome,
)
from autopipe.benchmarking.baseline import Baseline
from autopipe.benchmarking.latency import judge_latencies
from autopipe.benchmarking.regression import check_regression, to_baseline
from autopipe.config.gates import Gates
from autopipe.errors import GateError, SetupError


def build_report(
    match: BenchmarkResult, gates: Gates, baseline: Baseline | None, device: Mapping[str, Any]
) -> BenchmarkReport:
    """Check all gates. Raises SetupError for a rival that could not be timed."""
    checked = list(_check_slowdowns(match, gates))
    if gates.regression is not None and baseline is not None:
        now = to_baseline(match, baseline.pipeline, device)
        checked.append(check_regression(now, baseline, gates.regression))
    told = {name: getattr(match, name) for name in BenchmarkResult.model_fields}
    return BenchmarkReport(**told, device=dict(device), gates=tuple(checked))


def require_gates(checked: Iterable[CheckedGate]) -> Iterator[str]:
    """Yield what is to be warned about. Raises GateError, after that, if a gate failed."""
    failed = []
    for gate in checked:
        if gate.outcome is Outcome.INCONCLUSIVE:
            yield f"{gate.gate}: {gate.found}"
        elif gate.outcome is Outcome.FAILED:
            failed.append(f"{gate.gate}: {gate.found}")
    if failed:
        raise GateError("\n".join(failed))


def _check_slowdowns(match: BenchmarkResult, gates: Gates) -> Iterator[CheckedGate]:
    """Check the gate of each rival: it fails beyond doubt, not within the spread of the times.

    Where other programs disturbed, it passes beyond doubt only as well.
    """
    rivals = {rival.name: rival.latency for rival in match.rivals}
    for field, limit in gates.max_slowdown.items():
        gate = f"gates.max_slowdown.{field}"
        name = _find_limited_rival(field, match)
        ratio = match.comparisons[name].ratio
        finding = f"the build takes {ratio:.2f} times as long as {name}, allowed is {limit:g}"
        verdict = judge_latencies(match.ours.latency, rivals[name], limit)
        if verdict is LatencyVerdict.FASTER or (ratio <= limit and not match.disturbed):
            outcome = Outcome.PASSED
        elif verdict is LatencyVerdict.SLOWER:
            outcome = Outcome.FAILED
        else:
            outcome = Outcome.INCONCLUSIVE
            finding = f"{finding}; the spread of the times is too wide to decide"
        if match.disturbed and outcome is not Outcome.PASSED:
            finding = f"{finding}; {match.disturbed}"
        yield CheckedGate(gate=gate, outcome=outcome, found=finding)


def _find_limited_rival(field: str, match: BenchmarkResult) -> str:
    """Return the rival that a limit is about. Raises SetupError where it was not timed."""
    timed = [rival.name for rival in match.rivals]
    if field in timed:
        return field
    if field == "best" and timed:
        return match.best or timed[0]
    if field == "best":
        reason = "; ".join(f"{name}: {why}" for name, why in match.skipped.items())
    else:
        reason = match.skipped.get(field, "")
    reason = reason or f"`benchmark.against` does not list {field!r}"
    raise SetupError(f"gates.max_slowdown.{field} can not be checked: {reason}")
