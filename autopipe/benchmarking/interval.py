"""Confidence intervals of the ratio of two series of times.

A round of a benchmark is a separate process, and rounds differ more than runs within one (Kalibera
and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013), so a round counts once, with its
median. Times are skewed and compared by ratio, so their logarithms are averaged. The interval is
Welch's: Student's t for two small samples of different variances (Georges, Buytaert and Eeckhout,
"Statistically Rigorous Java Performance Evaluation", OOPSLA 2007, section 3.3).
"""

from collections.abc import Sequence
from math import comb, exp, log, sqrt
from statistics import fmean, median, variance
from typing import Final

from autopipe.config.frozen import Frozen

_STUDENT: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom; 30's beyond."""

_FEWEST: Final = 2
"""Minimum number of rounds for a variance."""


class Interval(Frozen, frozen=True):
    """A ratio of times with its confidence interval, at 95 % unless stated otherwise."""

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, values: tuple[float, float, float]) -> "Interval":
        """Build an interval from (ratio, low, high), the form in artifacts."""
        return cls(**dict(zip(("ratio", "low", "high"), values, strict=True)))

    def as_tuple(self) -> tuple[float, float, float]:
        """Return (ratio, low, high), the form in artifacts."""
        return self.ratio, self.low, self.high

    def __str__(self) -> str:
        """Format it for messages."""
        return f"{self.ratio:.3g} ({self.low:.3g} to {self.high:.3g})"


def estimate_ratio(now: Sequence[float], before: Sequence[float]) -> Interval | None:
    """Return the interval of `now / before` by Welch's t; None with fewer than two rounds."""
    if min(len(now), len(before)) < _FEWEST:
        return None
    samples = [[log(value) for value in series] for series in (now, before)]
    middle = fmean(samples[0]) - fmean(samples[1])
    errors = [variance(sample) / len(sample) for sample in samples]
    reach = _find_student_quantile(errors, [len(sample) - 1 for sample in samples]) * sqrt(
        sum(errors)
    )
    return Interval(ratio=exp(middle), low=exp(middle - reach), high=exp(middle + reach))


def estimate_paired_ratio(
    now: Sequence[float], before: Sequence[float], sure: float
) -> Interval | None:
    """Return the interval of `now / before` for paired rounds, by the sign test.

    The ratio is the median of the rounds' ratios. No distribution is assumed: the k-th smallest and
    the k-th largest ratio bound the true median, except with probability 2 P(B <= k - 1), where B
    is binomial with one half over the number of rounds. `sure` is the confidence level; None if
    there are too few rounds for it. Of 12 rounds, the second and the last but one are the bounds
    at 0.99.
    """
    ratios = sorted(new / old for new, old in zip(now, before, strict=True))
    rounds, outside, inside = len(ratios), 0.0, 0
    while inside < rounds / 2:
        outside += 2 * comb(rounds, inside) / 2**rounds
        if outside > 1 - sure:
            break
        inside += 1
    if not inside:
        return None
    return Interval(ratio=median(ratios), low=ratios[inside - 1], high=ratios[-inside])


def _find_student_quantile(errors: Sequence[float], freedoms: Sequence[int]) -> float:
    """Return the quantile for the Welch-Satterthwaite degrees of freedom, rounded down."""
    spread = sum(error**2 / freedom for error, freedom in zip(errors, freedoms, strict=True))
    freedom = sum(errors) ** 2 / spread if spread else sum(freedoms)
    return _STUDENT[min(max(int(freedom), 1), len(_STUDENT)) - 1]
