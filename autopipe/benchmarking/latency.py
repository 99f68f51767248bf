"""Summarize timed runs as a median with its spread, and compare two of them."""

from collections.abc import Sequence
from statistics import median, quantiles

from autopipe.artifacts.benchmark import Latency, LatencyComparison, LatencyVerdict


def summarize_rounds(rounds: Sequence[Sequence[float]]) -> Latency:
    """Summarize the runs of all rounds; the quartiles are widened to include each round's median.

    A change of the machine's speed between rounds shows in the medians, not in the quartiles.
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
    """Compare the latencies of the same rounds; `disturbed` ones are inconclusive."""
    ratios = tuple(a / b for a, b in zip(ours.rounds, theirs.rounds, strict=True))
    verdict = LatencyVerdict.INCONCLUSIVE if disturbed else judge_latencies(ours, theirs, 1.0)
    return LatencyComparison(ratio=ours.median / theirs.median, rounds=ratios, verdict=verdict)


def judge_latencies(ours: Latency, theirs: Latency, factor: float) -> LatencyVerdict:
    """Return whether ours is faster than `factor` times theirs, if the spreads do not overlap."""
    if ours.high < theirs.low * factor:
        return LatencyVerdict.FASTER
    if ours.low > theirs.high * factor:
        return LatencyVerdict.SLOWER
    return LatencyVerdict.INCONCLUSIVE
