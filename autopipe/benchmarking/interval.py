"""How much longer one series of rounds takes than another, and how sure that is.

Of a benchmark a round is a process of its own, and rounds differ more than runs within one
(Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013), so a round counts once,
with its median. Times are skewed and compared by ratio, so it is their logarithms that are
averaged. The interval is Welch's: Student's t for two samples, which may be few and spread
differently (Georges, Buytaert and Eeckhout, "Statistically Rigorous Java Performance Evaluation",
OOPSLA 2007, section 3.3).
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
"""Quantiles of Student's t, 95 % in the middle, for 1 to 30 degrees of freedom; then it is 30's."""

_FEWEST: Final = 2
"""Rounds from which there is a spread."""


class Interval(Frozen, frozen=True):
    """A ratio of times, with the interval that holds it in most cases: 95 of 100, if not said."""

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, told: tuple[float, float, float]) -> "Interval":
        """Return what an artifact has told as ratio, low and high."""
        return cls(**dict(zip(("ratio", "low", "high"), told, strict=True)))

    def told(self) -> tuple[float, float, float]:
        """Return ratio, low and high, as artifacts have them."""
        return self.ratio, self.low, self.high

    def __str__(self) -> str:
        """Write it for people."""
        return f"{self.ratio:.3g} ({self.low:.3g} to {self.high:.3g})"


def estimate_ratio(now: Sequence[float], before: Sequence[float]) -> Interval | None:
    """Return `now / before`; None where a single round says nothing of the spread."""
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
    """Return `now / before` where both were timed in each round, by the sign test.

    The ratio is the median of the rounds' ratios. Nothing is supposed of how times are spread: the
    median of all rounds there could be lies between the k-th least and the k-th largest ratio, but
    for as many cases as k - 1 throws of a coin out of all rounds are heads at most, twice. `sure`
    is the part of cases in which it does; None where there are too few rounds for that. So of 12
    rounds the second and the last but one are the ends for 0.99.
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
    """Return the quantile at the degrees of freedom of Welch and Satterthwaite, rounded down."""
    spread = sum(error**2 / freedom for error, freedom in zip(errors, freedoms, strict=True))
    freedom = sum(errors) ** 2 / spread if spread else sum(freedoms)
    return _STUDENT[min(max(int(freedom), 1), len(_STUDENT)) - 1]
