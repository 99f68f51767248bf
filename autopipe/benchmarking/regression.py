"""Whether a build is slower than an earlier one, as far as the times tell.

On the same device the times themselves are compared, and on any device their ratio to each rival
of the same version, which was timed in the same minutes. A machine has slow days, on which the
rival is slow too; so a build fails only if all that can be compared says so. Where other programs
ran beside one of the two builds, only the ratios are compared.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from autopipe.artifacts.benchmark import BenchmarkResult, CheckedGate, Outcome
from autopipe.benchmarking.baseline import OURS, Baseline
from autopipe.benchmarking.interval import Interval, estimate_ratio
from autopipe.config.gates import Regression

GATE = "gates.regression"


def to_baseline(match: BenchmarkResult, pipeline: str, device: Mapping[str, Any]) -> Baseline:
    """Return the times of a match as what later builds are compared with."""
    return Baseline(
        pipeline=pipeline,
        device=dict(device),
        threads=match.threads,
        rivals={rival.name: rival.version for rival in match.rivals},
        rounds={
            contender.name: contender.latency.rounds for contender in (match.ours, *match.rivals)
        },
        disturbed=bool(match.disturbed),
    )


def check_regression(now: Baseline, before: Baseline, gate: Regression) -> CheckedGate:
    """Compare two builds."""
    evidence, obstacles = _collect_evidence(now, before)
    outcome = judge_intervals(list(evidence.values()), gate.max)
    said = [f"{interval} times the baseline's {what}" for what, interval in evidence.items()]
    said += [f"allowed is {gate.max:g}", *obstacles]
    if outcome is Outcome.INCONCLUSIVE:
        said.append(_explain_inconclusive(evidence))
        if gate.on_inconclusive == "fail":
            outcome = Outcome.FAILED
    return CheckedGate(gate=GATE, outcome=outcome, found="; ".join(said))


def _explain_inconclusive(evidence: Mapping[str, Interval]) -> str:
    """Say why nothing can be said."""
    more = "these times do not tell; more `benchmark.rounds` may"
    return more if evidence else "nothing is left to compare"


def judge_intervals(evidence: list[Interval], limit: float) -> Outcome:
    """Fail if every interval lies beyond the limit; pass if one lies within, and none beyond."""
    beyond = [interval.low > limit for interval in evidence]
    if evidence and all(beyond):
        return Outcome.FAILED
    if any(interval.high <= limit for interval in evidence) and not any(beyond):
        return Outcome.PASSED
    return Outcome.INCONCLUSIVE


def _collect_evidence(now: Baseline, before: Baseline) -> tuple[dict[str, Interval], list[str]]:
    """Return the intervals by what they are of, and why others could not be made."""
    if now.threads != before.threads:
        return {}, [f"threads were {before.threads}, and are {now.threads}"]
    evidence: dict[str, Interval] = {}
    obstacles = []
    for what, obstacle, series in _list_comparable_series(now, before):
        interval = None if obstacle else estimate_ratio(*series)
        if interval is None:
            why = obstacle or "a single round has no spread"
            obstacles.append(f"{what} is not compared: {why}")
        else:
            evidence[what] = interval
    return evidence, obstacles


_Series = tuple[tuple[float, ...], tuple[float, ...]]


def _list_comparable_series(now: Baseline, before: Baseline) -> Iterator[tuple[str, str, _Series]]:
    """Yield what might be compared: its name, what stands against it, and both series."""
    differ = sorted(
        name
        for name in now.device.keys() | before.device.keys()
        if now.device.get(name) != before.device.get(name)
    )
    both = {"this build": now, "the baseline": before}
    busy = " and ".join(name for name, times in both.items() if times.disturbed)
    obstacle = f"another machine ({', '.join(differ)})" if differ else ""
    if busy:
        obstacle = f"other programs disturbed when {busy} was timed"
    yield "time", obstacle, (now.rounds[OURS], before.rounds[OURS])
    for rival, version in now.rivals.items():
        what = f"time relative to {rival}"
        if before.rivals.get(rival) == version:
            yield what, "", (_divide_by_rival(now, rival), _divide_by_rival(before, rival))
        else:
            was = before.rivals.get(rival, "not timed")
            yield what, f"{rival} is {version}, and was {was}", ((), ())


def _divide_by_rival(times: Baseline, rival: str) -> tuple[float, ...]:
    """Return the time of each round relative to the rival's, one after the other."""
    pairs = zip(times.rounds[OURS], times.rounds[rival], strict=True)
    return tuple(ours / theirs for ours, theirs in pairs)
