"""Check whether a build is significantly slower than its baseline.

On the same device the times themselves are compared, and on any device their ratio to each
reference runtime of the same version, which was timed together with them. A slow machine slows the
reference runtime, too; so a build fails only if all comparisons do. If other programs disturbed one
of the two builds, only the ratios are compared.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from autopipe.artifacts.benchmark import BenchmarkResult, CheckedGate, Outcome
from autopipe.benchmarking.baseline import OURS, Baseline
from autopipe.benchmarking.interval import Interval, estimate_ratio
from autopipe.config.gates import Regression

GATE = "gates.regression"


def to_baseline(match: BenchmarkResult, pipeline: str, device: Mapping[str, Any]) -> Baseline:
    """Convert the result of a benchmark to a baseline."""
    return Baseline(
        pipeline=pipeline,
        device=dict(device),
        threads=match.threads,
        competitors={competitor.name: competitor.version for competitor in match.competitors},
        rounds={
            contender.name: contender.latency.rounds
            for contender in (match.ours, *match.competitors)
        },
        disturbed=bool(match.disturbed),
    )


def check_regression(now: Baseline, before: Baseline, gate: Regression) -> CheckedGate:
    """Compare a build with its baseline."""
    evidence, obstacles = _collect_evidence(now, before)
    outcome = judge_intervals(list(evidence.values()), gate.max)
    findings = [f"{interval} times the baseline's {what}" for what, interval in evidence.items()]
    findings += [f"allowed is {gate.max:g}", *obstacles]
    if outcome is Outcome.INCONCLUSIVE:
        findings.append(_explain_inconclusive(evidence))
        if gate.on_inconclusive == "fail":
            outcome = Outcome.FAILED
    return CheckedGate(gate=GATE, outcome=outcome, found="; ".join(findings))


def _explain_inconclusive(evidence: Mapping[str, Interval]) -> str:
    """Explain why the comparison is inconclusive."""
    advice = "these times do not tell; more `benchmark.rounds` may"
    return advice if evidence else "nothing is left to compare"


def judge_intervals(evidence: list[Interval], limit: float) -> Outcome:
    """Fail if every interval lies beyond the limit; pass if one lies within, and none beyond."""
    beyond = [interval.low > limit for interval in evidence]
    if evidence and all(beyond):
        return Outcome.FAILED
    if any(interval.high <= limit for interval in evidence) and not any(beyond):
        return Outcome.PASSED
    return Outcome.INCONCLUSIVE


def _collect_evidence(now: Baseline, before: Baseline) -> tuple[dict[str, Interval], list[str]]:
    """Return the intervals by metric, and why other metrics are not compared."""
    if now.threads != before.threads:
        return {}, [f"threads were {before.threads}, and are {now.threads}"]
    evidence: dict[str, Interval] = {}
    obstacles = []
    for metric, obstacle, series in _list_comparable_series(now, before):
        interval = None if obstacle else estimate_ratio(*series)
        if interval is None:
            why = obstacle or "a single round has no spread"
            obstacles.append(f"{metric} is not compared: {why}")
        else:
            evidence[metric] = interval
    return evidence, obstacles


_Series = tuple[tuple[float, ...], tuple[float, ...]]


def _list_comparable_series(now: Baseline, before: Baseline) -> Iterator[tuple[str, str, _Series]]:
    """Yield (metric, obstacle or "", both series) for each metric."""
    differ = sorted(
        name
        for name in now.device.keys() | before.device.keys()
        if now.device.get(name) != before.device.get(name)
    )
    baselines = {"this build": now, "the baseline": before}
    busy = " and ".join(name for name, times in baselines.items() if times.disturbed)
    obstacle = f"another machine ({', '.join(differ)})" if differ else ""
    if busy:
        obstacle = f"other programs disturbed when {busy} was timed"
    yield "time", obstacle, (now.rounds[OURS], before.rounds[OURS])
    for competitor, version in now.competitors.items():
        metric = f"time relative to {competitor}"
        if before.competitors.get(competitor) == version:
            yield (
                metric, "",
                (_divide_by_competitor(now, competitor), _divide_by_competitor(before, competitor)),
            )  # fmt: skip
        else:
            earlier_version = before.competitors.get(competitor, "not timed")
            yield metric, f"{competitor} is {version}, and was {earlier_version}", ((), ())


def _divide_by_competitor(times: Baseline, competitor: str) -> tuple[float, ...]:
    """Return the ratio of our time to that of a reference runtime in each round."""
    pairs = zip(times.rounds[OURS], times.rounds[competitor], strict=True)
    return tuple(ours / theirs for ours, theirs in pairs)
