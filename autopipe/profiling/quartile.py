"""The time that counts of many: others on the machine make some runs slower, and none faster."""

from collections.abc import Sequence
from statistics import quantiles


def lower_quartile(times: Sequence[float]) -> float:
    """Return the time that a quarter of the runs stay below; the only one of a single run."""
    return quantiles(times, n=4, method="inclusive")[0] if len(times) > 1 else times[0]
