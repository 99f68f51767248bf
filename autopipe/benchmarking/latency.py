"""Turns timed runs into a median with its spread, and two of them into a verdict."""

from collections.abc import Sequence
from statistics import median, quantiles

from autopipe.artifacts.benchmark import Latency, LatencyComparison, LatencyVerdict


def summarize_rounds(rounds: Sequence[Sequence[float]]) -> Latency:
    """Sum up the runs of each round; their quartiles are widened to hold every round's median.

    A machine that changes its speed between rounds shows in the medians, not in the runs.
    """
    runs = [seconds for seconds_of_round in rounds for seconds in seconds_of_round]
    medians = tuple(median(seconds) for seconds in rounds)
    low, _, high = quantiles(runs, n=4, method="inclusive") if len(runs) > 1 else runs * 3
    return Latency(
        median=median(runs), low=min(low, *medians), high=max(high, *medians), rounds=medians
    )


def compare_latencies(
    ours: Latency, theirs: Latency, *, disturbed: bool = False
) -> LatencyComparison:
    """Compare the latencies of the same rounds; those of `disturbed` ones tell nothing."""
    ratios = tuple(a / b for a, b in zip(ours.rounds, theirs.rounds, strict=True))
    verdict = LatencyVerdict.INCONCLUSIVE if disturbed else judge_latencies(ours, theirs, 1.0)
    return LatencyComparison(ratio=ours.median / theirs.median, rounds=ratios, verdict=verdict)


def judge_latencies(ours: Latency, theirs: Latency, factor: float) -> LatencyVerdict:
    """Say whether ours is faster than `factor` times theirs, as far as the spreads tell."""
    if ours.high < theirs.low * factor:
        return LatencyVerdict.FASTER
    if ours.low > theirs.high * factor:
        return LatencyVerdict.SLOWER
    return LatencyVerdict.INCONCLUSIVE
