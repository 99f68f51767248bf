"""Check the latency gates of a build."""

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
    """Check all gates. Raises SetupError for a reference runtime that could not be timed."""
    checked_gates = list(_check_slowdowns(match, gates))
    if gates.regression is not None and baseline is not None:
        now = to_baseline(match, baseline.pipeline, device)
        checked_gates.append(check_regression(now, baseline, gates.regression))
    fields = {name: getattr(match, name) for name in BenchmarkResult.model_fields}
    return BenchmarkReport(**fields, device=dict(device), gates=tuple(checked_gates))


def require_gates(checked_gates: Iterable[CheckedGate]) -> Iterator[str]:
    """Yield warnings about inconclusive gates. Raises GateError at the end if a gate failed."""
    failures = []
    for gate in checked_gates:
        if gate.outcome is Outcome.INCONCLUSIVE:
            yield f"{gate.gate}: {gate.found}"
        elif gate.outcome is Outcome.FAILED:
            failures.append(f"{gate.gate}: {gate.found}")
    if failures:
        raise GateError("\n".join(failures))


def _check_slowdowns(match: BenchmarkResult, gates: Gates) -> Iterator[CheckedGate]:
    """Check the gate of each reference runtime: it fails only if the spreads do not overlap.

    If other programs disturbed the measurement, it also passes only in that case.
    """
    latencies = {competitor.name: competitor.latency for competitor in match.competitors}
    for field, limit in gates.max_slowdown.items():
        gate = f"gates.max_slowdown.{field}"
        name = _find_limited_competitor(field, match)
        ratio = match.comparisons[name].ratio
        finding = f"the build takes {ratio:.2f} times as long as {name}, allowed is {limit:g}"
        verdict = judge_latencies(match.ours.latency, latencies[name], limit)
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


def _find_limited_competitor(field: str, match: BenchmarkResult) -> str:
    """Return the reference runtime of a limit. Raises SetupError if it was not timed."""
    timed_names = [competitor.name for competitor in match.competitors]
    if field in timed_names:
        return field
    if field == "best" and timed_names:
        return match.best or timed_names[0]
    if field == "best":
        reason = "; ".join(f"{name}: {why}" for name, why in match.skipped.items())
    else:
        reason = match.skipped.get(field, "")
    reason = reason or f"`benchmark.against` does not list {field!r}"
    raise SetupError(f"gates.max_slowdown.{field} cannot be checked: {reason}")
