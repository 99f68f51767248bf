"""Turns timed runs into a median with its spread, and two of them into a verdict."""

from collections.abc import Sequence
from enum import StrEnum
from statistics import median, quantiles
from typing import Self

from autopipe.config.frozen import Frozen


class Latency(Frozen, frozen=True):
    """The times of one contender, in seconds."""

    median: float
    """Median over all runs of all rounds."""
    low: float
    """Lower quartile of the runs."""
    high: float
    """Upper quartile of the runs."""
    rounds: tuple[float, ...]
    """Median of each round, in order."""

    @classmethod
    def of(cls, rounds: Sequence[Sequence[float]]) -> Self:
        """Sum up the runs of each round; their quartiles are widened to hold every round's median.

        A machine that changes its speed between rounds shows in the medians, not in the runs.
        """
        runs = [seconds for seconds_of_round in rounds for seconds in seconds_of_round]
        medians = tuple(median(seconds) for seconds in rounds)
        low, _, high = quantiles(runs, n=4, method="inclusive") if len(runs) > 1 else runs * 3
        return cls(
            median=median(runs),
            low=min(low, *medians),
            high=max(high, *medians),
            rounds=medians,
        )


class Verdict(StrEnum):
    """Which contender is faster."""

    FASTER = "faster"
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"
    """The spreads overlap, or something disturbed: these times do not tell."""


class Comparison(Frozen, frozen=True):
    """A build against one rival."""

    ratio: float
    """Our median divided by theirs; below 1 the build is faster."""
    rounds: tuple[float, ...]
    """The ratio of each round, whose two contenders ran one after the other."""
    verdict: Verdict
    """What the spreads allow to say."""

    @classmethod
    def of(cls, ours: Latency, theirs: Latency, *, disturbed: bool = False) -> Self:
        """Compare the latencies of the same rounds; those of `disturbed` ones tell nothing."""
        ratios = tuple(a / b for a, b in zip(ours.rounds, theirs.rounds, strict=True))
        verdict = Verdict.INCONCLUSIVE if disturbed else against(ours, theirs, 1.0)
        return cls(ratio=ours.median / theirs.median, rounds=ratios, verdict=verdict)


def against(ours: Latency, theirs: Latency, factor: float) -> Verdict:
    """Say whether ours is faster than `factor` times theirs, as far as the spreads tell."""
    if ours.high < theirs.low * factor:
        return Verdict.FASTER
    if ours.low > theirs.high * factor:
        return Verdict.SLOWER
    return Verdict.INCONCLUSIVE
